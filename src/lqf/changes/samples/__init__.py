"""Samples come and go: adding and forgetting."""
