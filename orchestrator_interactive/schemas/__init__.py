"""The configuration of agents and tools."""
