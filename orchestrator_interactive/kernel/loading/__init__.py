"""Find and import modules."""
