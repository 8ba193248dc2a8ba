"""Workspaces, apps and people."""
