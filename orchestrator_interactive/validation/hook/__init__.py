"""Validate hooks: `payloads` has the event data for their handlers, `rules` the rules for their results."""
