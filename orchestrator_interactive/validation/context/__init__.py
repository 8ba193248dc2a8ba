"""Contexts: `rules` about keeping conversations, `compaction` about showing less, `conversations` to try both with."""
