"""Templates for what agents are told."""
