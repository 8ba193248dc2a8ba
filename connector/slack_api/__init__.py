"""Slack's Web API: calls, rate limits, retries, history."""
