"""Conversations that other systems begin over HTTP."""
