"""Web API methods."""
