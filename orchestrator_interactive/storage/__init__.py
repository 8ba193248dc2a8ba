"""Access to SQLite and Redis, shared by all stores."""
