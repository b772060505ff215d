"""What the scripts share; nothing here is a benchmark."""
