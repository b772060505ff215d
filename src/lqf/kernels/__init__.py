"""Kernel matrices of head and body, kernel ridge regression, kernels with other images."""
