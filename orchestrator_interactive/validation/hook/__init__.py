"""Hooks: `payloads` are what their handlers are given, `rules` what must become of it."""
