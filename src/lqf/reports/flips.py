"""Kinds of images on which two models disagree."""

BROKEN, REPAIRED, OTHER = "broken", "repaired", "still wrong"
"""The first alone is right, the second alone is right, neither is."""
ABOUT = {
    BROKEN: ("Broken", "Only the first model is right: negative flips, those first of which the second is surest."),
    REPAIRED: ("Repaired", "Only the second model is right; those first of which it is surest."),
    OTHER: ("Wrong in both", "The prediction is another one, and neither is right."),
}
"""Of each kind: its title and what it means."""
