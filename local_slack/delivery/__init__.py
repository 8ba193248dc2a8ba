"""Deliver events by Socket Mode and HTTP."""
