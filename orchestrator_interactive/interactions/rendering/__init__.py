"""Render a conversation log as messages for a provider."""
