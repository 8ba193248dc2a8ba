"""Where logs are kept: in memory, in an SQLite file, or in Redis. `open_store` finds the one for a URL."""
