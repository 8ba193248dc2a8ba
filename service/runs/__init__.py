"""Leases and inboxes of this process."""
