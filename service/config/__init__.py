"""Configuration file and environment."""
