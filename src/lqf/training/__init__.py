"""Ordinary fine-tuning by mini-batches: of all weights under a new head, and adaptation to leaky activations."""
