"""`lqf serve`: a page on this machine where one asks a fitted model "what if?" and sees the answer."""
