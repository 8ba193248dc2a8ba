"""Build a valid provider request from the rows of a log."""
