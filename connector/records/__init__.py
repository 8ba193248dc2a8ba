"""Durable records: inbox entries, runs, and pending cleanup."""
