"""From us to Slack: what is said, in Slack's words, when there is room for it, and once."""
