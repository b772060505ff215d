"""What the results become: tables, pictures, a page."""
