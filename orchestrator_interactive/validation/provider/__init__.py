"""Providers: `calls` asks them, with the `catching_server` in the place of their service; `rules` and `wire` look."""
