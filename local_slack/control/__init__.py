"""The control API for faults, limits and the record."""
