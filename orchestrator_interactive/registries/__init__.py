"""Agents and tools, by name."""
