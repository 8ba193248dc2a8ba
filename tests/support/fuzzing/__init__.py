"""Events that no Slack should send, in large numbers, and what must hold after them."""
