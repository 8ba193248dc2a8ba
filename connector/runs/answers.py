"""What a text of the agent becomes in Slack: messages, or a file and what stands in its place."""

from __future__ import annotations

from connector.formatting.links import whole
from connector.formatting.markdown import markdown_to_slack
from connector.formatting.splitting import PIECE_CHARS, pieces
from connector.slack_api.uploads import summary_of

# A longer answer becomes a file: it would fill several screens, and Slack takes about one message a second, so that
# whoever writes meanwhile stands between its parts.
_MOST_MESSAGES = 5
# What is longer than this would be more messages than that: it is not even converted, which takes its time.
_MOST_CHARS = _MOST_MESSAGES * PIECE_CHARS
# So are very many short lines; the time that the conversion takes grows with their number.
_MOST_LINES = 1000


def posts_of(markdown: str) -> tuple[tuple[str, ...], str]:
    """The messages that a text becomes, and what comes before them as a file, in Markdown; both blank for nothing."""
    markdown = whole(markdown).strip("\n")
    is_short = len(markdown) <= _MOST_CHARS and markdown.count("\n") < _MOST_LINES
    if is_short and len(text := markdown_to_slack(markdown)) <= _MOST_CHARS:  # escaped characters become longer
        texts = tuple(pieces(text))
        if len(texts) <= _MOST_MESSAGES:
            return texts, ""
    return (summary_of(markdown), markdown) if markdown.strip() else ((), "")


def messages_of(markdown: str) -> tuple[str, ...]:
    """A whole text in messages, however long it is: a long one takes seconds."""
    return tuple(pieces(markdown_to_slack(markdown)))
