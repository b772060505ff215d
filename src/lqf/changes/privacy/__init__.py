"""Models that may be released without giving away a training image."""
