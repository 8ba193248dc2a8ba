"""Validate providers: `calls` calls them against the `catching_server`; `rules` and `wire` check the outcomes."""
