"""The state of a workspace."""
