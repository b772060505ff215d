"""What a fitted model says about its own training data: wrong labels, copies, what is informative, what is confused."""
