"""What to take: the backbone to fit, the images to label next."""
