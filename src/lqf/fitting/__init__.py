"""From images to a fitted model."""
