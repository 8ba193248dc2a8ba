"""The page, and files."""
