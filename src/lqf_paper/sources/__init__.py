"""Data and weights of the committed results, from their public originals."""
