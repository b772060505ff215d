"""The methods that the paper compares, each under its name."""
