"""The linearised network and the quadratic problem over it: J·v, Jᵀ·u, targets, inputs in batches."""
