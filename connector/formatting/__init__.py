"""Convert a model's Markdown to Slack's formats, and split long texts."""
