"""Leases and runs of this process."""
