"""Block Kit: schemas and validation."""
