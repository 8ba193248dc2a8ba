"""Validate contexts: `rules` for storing messages, `compaction` for compaction, `conversations` as test data."""
