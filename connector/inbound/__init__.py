"""From Slack to us: the doors, who may come in, and whom it is for; all is kept before Slack hears that we have it."""
