"""Validate orchestrators: `runner` records a run of each of the `scenarios` with the scripted parts of `script`.

The rules check the recordings: `events` for emitted events, `rows` for context rows and requests, `hooks` for hook
results, `rules` for the rest.
"""
