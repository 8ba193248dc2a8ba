"""The installations of the app in many workspaces: their tokens, and the pages on which people install it."""
