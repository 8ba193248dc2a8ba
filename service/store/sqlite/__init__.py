"""The run store on SQLite."""
