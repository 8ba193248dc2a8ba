"""The process: configuration, sessions, and the one place where Slack and the agents are joined (`app`)."""
