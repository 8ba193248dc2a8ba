"""Read-only checks of everything that the service depends on. They change nothing and post nothing."""
