"""The accounts that people connect to other services: their tokens, and the login in their browsers."""
