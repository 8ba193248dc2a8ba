"""One Web API call, as a method of Slack sees it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import SlackRefused

if TYPE_CHECKING:
    from .app import App
    from .arguments import Arguments
    from .people import Member
    from .workspace import Workspace

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """``base_url`` is the server's as the caller knows it."""

    workspace: Workspace
    member: Member
    args: Arguments
    app: App
    base_url: str


Method = Callable[[Call], Json]
Methods = Mapping[str, Method]


def page_of(items: Sequence[T], args: Arguments, default_limit: int) -> tuple[Sequence[T], str]:
    """Return one page of ``items`` and the cursor of the next, empty at the end."""
    start = _position(args.text("cursor"))
    end = start + args.limit(default_limit)
    return items[start:end], _cursor(end) if end < len(items) else ""


def _cursor(position: int) -> str:
    return base64.b64encode(f"next:{position}".encode()).decode()


def _position(cursor: str | None) -> int:
    if not cursor:
        return 0
    try:
        word, _, position = base64.b64decode(cursor, validate=True).decode().partition(":")
        if word == "next":
            return int(position)
    except (binascii.Error, ValueError) as e:
        raise SlackRefused("invalid_cursor") from e
    raise SlackRefused("invalid_cursor")
