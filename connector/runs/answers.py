"""Convert an agent's text to Slack messages, or to a file with a summary."""

from __future__ import annotations

from connector.formatting.inline import whole
from connector.formatting.markdown import markdown_to_slack
from connector.formatting.splitting import PIECE_CHARS, pieces
from connector.slack_api.uploads import summary_of

# A longer answer becomes a file: it would fill several screens, and at about one message a second, other people's posts
# would appear between its parts.
_MOST_MESSAGES = 5
# A longer text would exceed that limit; skip its conversion, which is slow.
_MOST_CHARS = _MOST_MESSAGES * PIECE_CHARS
# The time of the conversion also grows with the number of lines.
_MOST_LINES = 1000


def posts_of(markdown: str) -> tuple[tuple[str, ...], str]:
    """Return the messages for a text, and a Markdown file to share before them; both are empty for a blank text."""
    markdown = whole(markdown).strip("\n")
    is_short = len(markdown) <= _MOST_CHARS and markdown.count("\n") < _MOST_LINES
    if is_short and len(text := markdown_to_slack(markdown)) <= _MOST_CHARS:  # escaped characters become longer
        texts = tuple(pieces(text))
        if len(texts) <= _MOST_MESSAGES:
            return texts, ""
    return (summary_of(markdown), markdown) if markdown.strip() else ((), "")


def messages_of(markdown: str) -> tuple[str, ...]:
    """Convert a whole text to messages, regardless of length. A long text takes seconds."""
    return tuple(pieces(markdown_to_slack(markdown)))
