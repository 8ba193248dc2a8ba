"""One run in Slack: its messages, its posts, and its background tasks."""
