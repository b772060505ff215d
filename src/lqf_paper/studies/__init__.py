"""What the experiments measure beyond test errors: spectra, information, weight decay, data that arrive."""
