"""Orchestrators: `scenarios` are the runs they are put through, `script` what surrounds them there, `playing` records.

The rules look at the recordings: `events` at what is emitted, `rows` at what is kept and sent, `hooks` at what is
heeded, `rules` at everything else.
"""
