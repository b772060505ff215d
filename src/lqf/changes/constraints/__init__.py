"""Linear conditions on outputs, and the optimum under them."""
