"""Pages: HTML files that need nothing else, no network and no script, with pictures and plots inside."""
