"""The content of a Slack message, and one-line texts and labels in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_VERBS = {
    "add": "Adding",
    "ask": "Asking",
    "call": "Calling",
    "check": "Checking",
    "create": "Creating",
    "delete": "Deleting",
    "edit": "Editing",
    "execute": "Running",
    "fetch": "Fetching",
    "find": "Finding",
    "get": "Getting",
    "list": "Listing",
    "open": "Opening",
    "query": "Querying",
    "read": "Reading",
    "run": "Running",
    "search": "Searching",
    "send": "Sending",
    "update": "Updating",
    "write": "Writing",
}
_LABEL_CHARS = 120
_BETWEEN_WORDS = re.compile(r"[\s_.:-]+|(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Content:
    """A message's text, and the blocks that Slack shows instead of it, if any."""

    text: str
    blocks: tuple[dict[str, Any], ...] = ()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `chat.postMessage` and `chat.update`."""
        return {"text": self.text, "blocks": json.dumps(self.blocks)} if self.blocks else {"text": self.text}


def section(text: str) -> dict[str, Any]:
    """Return a block with a text in Slack's markup."""
    return {"type": "section", "text": mrkdwn(text)}


def mrkdwn(text: str) -> dict[str, Any]:
    """Return a text object in Slack's markup. Verbatim: Slack does not turn URLs and names in it into links."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def plain(text: str) -> dict[str, Any]:
    """Return a text object without markup."""
    return {"type": "plain_text", "text": text}


def button(action_id: str, label: str, value: str, **style: str) -> dict[str, Any]:
    """Return a button; a click carries its action id and value."""
    text = {"type": "plain_text", "text": label}
    return {"type": "button", "action_id": action_id, "value": value, "text": text, **style}


def text_field(name: str, label: str, max_chars: int, **options: bool) -> dict[str, Any]:
    """Return a field of a form for a text of several lines; `name` is the id of its block and of its action."""
    element = {"type": "plain_text_input", "action_id": name, "multiline": True, "max_length": max_chars, **options}
    return {"type": "input", "block_id": name, "label": plain(label), "element": element}


def modal(callback_id: str, metadata: str, title: str, blocks: list[dict[str, Any]], **buttons: str) -> dict[str, Any]:
    """Return a form; Slack sends the metadata back with it. `buttons`: the labels of `submit` (if any) and `close`."""
    labels = {name: plain(label) for name, label in {"title": title, **buttons}.items()}
    return {"type": "modal", "callback_id": callback_id, "private_metadata": metadata, "blocks": blocks, **labels}


def one_line(text: str, most: int) -> str:
    """Put a text on one line, truncated to `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def use_of(tool: str) -> str:
    """Return the label for a call of a tool that sends none itself: `read_file` gives “Reading file”."""
    verb, *others = [word for word in _BETWEEN_WORDS.split(one_line(tool, _LABEL_CHARS)) if word] or ["a tool"]
    if verb.lower() in _VERBS and others:
        return " ".join([_VERBS[verb.lower()], *(word.lower() for word in others)])
    return " ".join(["Using", verb, *others])


def moment(at_s: float, form: str = "{date_short_pretty} {time}") -> str:
    """Return a time in Slack's markup, which shows it in each reader's time zone; `at_s` in seconds since the epoch."""
    utc = datetime.fromtimestamp(at_s, UTC)
    return f"<!date^{int(at_s)}^{form}|{utc:%d %B %H:%M} UTC>"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun in singular or plural."""
    return f"1 {one}" if count == 1 else f"{count} {many or f'{one}s'}"
