"""Agent sessions and their workspaces."""
