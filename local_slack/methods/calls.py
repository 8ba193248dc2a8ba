"""One Web API call, and cursors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from local_slack.installation.app import App
    from local_slack.methods.arguments import Arguments
    from local_slack.workspace.people import Member
    from local_slack.workspace.workspace import Workspace

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """``base_url`` is the server's address in the caller's request."""

    workspace: Workspace
    member: Member
    args: Arguments
    app: App
    base_url: str


Method = Callable[[Call], Json]
Methods = Mapping[str, Method]


def page_of(items: Sequence[T], args: Arguments, default_limit: int) -> tuple[Sequence[T], str]:
    """Return one page of ``items`` and the cursor of the next one, empty at the end."""
    try:
        start = int(next_of(args) or 0)
    except ValueError as e:
        raise SlackRefused("invalid_cursor") from e
    end = start + args.limit(default_limit)
    return items[start:end], cursor_to(str(end)) if end < len(items) else ""


def cursor_to(item: str) -> str:
    """Encode the cursor of a page that begins with this item."""
    return base64.b64encode(f"next:{item}".encode()).decode()


def next_of(args: Arguments) -> str | None:
    """Decode the cursor of a call: the first item of the page, or None for the first page."""
    cursor = args.text("cursor")
    if not cursor:
        return None
    try:
        word, _, item = base64.b64decode(cursor, validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as e:
        raise SlackRefused("invalid_cursor") from e
    if word != "next":
        raise SlackRefused("invalid_cursor")
    return item
