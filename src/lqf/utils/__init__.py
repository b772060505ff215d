"""What every layer may use: files written whole, text, JSON values, progress, levels of exactness."""
