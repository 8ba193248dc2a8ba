"""Buttons and other interactive elements."""
