"""Other ridge strengths: the error against them, and models at them."""
