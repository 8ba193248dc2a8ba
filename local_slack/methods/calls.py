"""One Web API call with its arguments, validated as in Slack; the table of methods; cursors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from local_slack.json_limits import Json, parse_json
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import is_timestamp
from local_slack.workspace.people import Bot, Member

if TYPE_CHECKING:
    from aiohttp import web

    from local_slack.methods.app import App
    from local_slack.methods.rate_limits import Limit
    from local_slack.workspace.messages import Channel, WorkspaceMessage
    from local_slack.workspace.workspace import Workspace

_TRUE = {"1", "true", "t", "yes"}
_MAX_LIMIT = 999
_FAMILIES = {"public_channel": "channels", "private_channel": "groups", "mpim": "mpim", "im": "im"}
Word = TypeVar("Word", bound=str)
T = TypeVar("T")


async def read_arguments(request: web.Request) -> Mapping[str, Any]:
    """Merge query and body; the body wins. As in Slack, a token is read from a form or the header only."""
    values: dict[str, Any] = {name: value for name, value in request.query.items() if name != "token"}
    if request.method != "POST":
        return values
    if request.content_type == "application/json":
        try:
            body = parse_json(await request.text() or "{}")
        except ValueError as e:
            raise SlackRefused("invalid_json") from e
        if not isinstance(body, dict):
            raise SlackRefused("json_not_object")
        return values | {name: value for name, value in body.items() if name != "token"}
    form = await request.post()
    return values | {name: value for name, value in form.items() if isinstance(value, str)}


def token_of(request: web.Request, values: Mapping[str, Any]) -> str:
    """Return the bearer token of a request, else the argument ``token``; an empty string without either."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    value = values.get("token")
    return value if isinstance(value, str) else ""


class Arguments:
    """Read named arguments; refuse values of the wrong type."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if value is not None}

    def need(self, *names: str) -> None:
        """Refuse a call without one of the named arguments. As in Slack, an empty value counts as present."""
        if missing := [name for name in names if name not in self._values]:
            raise invalid(*(f"[ERROR] missing required field: {name}" for name in missing))

    def given(self) -> Json:
        return {name: value for name, value in self._values.items() if name != "token"}

    def has(self, name: str) -> bool:
        return name in self._values

    def required(self, name: str) -> str:
        self.need(name)
        return self.text(name) or ""

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        raise invalid(f"[ERROR] must provide a string [json-pointer:/{name}]")

    def integer(self, name: str) -> int:
        """Return an integer, given as a number or as digits; raises KeyError if it is missing."""
        value = self._values[name]
        digits = isinstance(value, str) and value.strip().lstrip("-").isdecimal()
        if isinstance(value, bool) or not (digits or isinstance(value, int)):
            raise invalid(f"[ERROR] must provide an integer [json-pointer:/{name}]")
        return int(value)

    def one_of(self, name: str, values: Sequence[Word]) -> Word:
        """Return the argument, which must be one of ``values``."""
        given = self.required(name)
        for value in values:
            if value == given:
                return value
        raise invalid(f"[ERROR] must be a valid enum value [json-pointer:/{name}]")

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings, given as a list, as JSON text, or separated by commas."""
        value = self._values.get(name)
        if isinstance(value, str):
            value = self._decoded(name, "invalid_arguments") if value.startswith("[") else value.split(",")
        if not isinstance(value, list | None) or not all(isinstance(item, str) for item in value or ()):
            raise invalid(f"[ERROR] must provide a list of strings [json-pointer:/{name}]")
        return tuple(value or ())

    def flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if isinstance(value, dict | list):
            raise invalid(f"[ERROR] must provide a boolean [json-pointer:/{name}]")
        return value if isinstance(value, bool) else str(value).lower() in _TRUE

    def limit(self, default: int) -> int:
        try:
            limit = int(self._values.get("limit", default))
        except (TypeError, ValueError) as e:
            raise SlackRefused("invalid_limit") from e
        if limit < 0:
            raise SlackRefused("invalid_limit")
        return min(limit, _MAX_LIMIT) or default

    def objects(self, name: str, refusal: str) -> tuple[Json, ...]:
        """Return a list of objects, given as a list or as JSON text; ``refusal`` is the error code."""
        value = self._decoded(name, refusal)
        if not isinstance(value, list | None) or not all(isinstance(item, dict) for item in value or ()):
            raise SlackRefused(refusal)
        return tuple(value or ())

    def object(self, name: str, refusal: str) -> Json:
        value = self._decoded(name, refusal)
        if not isinstance(value, dict | None):
            raise SlackRefused(refusal)
        return value or {}

    def thread_ts(self) -> str | None:
        thread_ts = self.text("thread_ts")
        if thread_ts and not is_timestamp(thread_ts):
            raise SlackRefused("invalid_thread_ts")
        return thread_ts or None

    def _decoded(self, name: str, refusal: str) -> Any:
        value = self._values.get(name)
        if not isinstance(value, str):
            return value
        try:
            return parse_json(value) if value else None
        except ValueError as e:
            raise SlackRefused(refusal) from e


def invalid(*messages: str) -> SlackRefused:
    return SlackRefused("invalid_arguments", *messages)


@dataclass(frozen=True, slots=True)
class Call:
    """``base_url`` is the server's address in the caller's request."""

    workspace: Workspace
    member: Member
    args: Arguments
    app: App
    base_url: str

    def channel(self, argument: str = "channel") -> Channel:
        return self.visible(self.args.required(argument))

    def visible(self, channel_id: str) -> Channel:
        """Return the channel with this id; a name, and other people's direct messages, are not found."""
        channel = self.workspace.channel(channel_id)
        if channel.id != channel_id or not may_see(self.member, channel):
            raise SlackRefused("channel_not_found")
        return channel

    def joined(self, argument: str = "channel") -> Channel:
        """Return the channel of a call by one of its members."""
        channel = self.channel(argument)
        if self.member.id not in channel.members:
            raise SlackRefused("not_in_channel")
        return channel

    def channel_named(self) -> str:
        """Return the channel of a call. Apps must give its id; people may give its name."""
        return self.channel().id if isinstance(self.member, Bot) else self.args.required("channel")

    def message(self, channel: str, ts: str, refusal: str = "message_not_found") -> WorkspaceMessage:
        if message := self.workspace.message(channel, ts):
            return message
        raise SlackRefused(refusal)


def may_see(member: Member, channel: Channel) -> bool:
    return not (channel.is_im or channel.is_private) or member.id in channel.members


Answer = Callable[[Call], Json]


@dataclass(frozen=True, slots=True)
class Method:
    """A Web API method: its required arguments, the scope of the bot's token, and the rate limits of the app.

    A scope such as ``*:read`` is needed for each type of conversation that a call reads.
    """

    answer: Answer
    needs: tuple[str, ...]
    scope: str
    limits: tuple[Limit, ...]

    def scopes(self, args: Arguments) -> list[str]:
        """Return the scopes that a call with these arguments needs."""
        if self.scope.startswith("*"):
            return [family + self.scope[1:] for family in _families(args)]
        if self.scope == "chat:write" and any(args.has(name) for name in ("username", "icon_emoji", "icon_url")):
            return [self.scope, "chat:write.customize"]
        return [self.scope] if self.scope else []


def _families(args: Arguments) -> list[str]:
    if args.has("channel"):
        return ["im" if str(args.given()["channel"]).startswith("D") else "channels"]
    kinds = str(args.given().get("types") or "public_channel").split(",")
    return [_FAMILIES[kind.strip()] for kind in kinds if kind.strip() in _FAMILIES]


METHODS: dict[str, Method] = {}


def method(name: str, *needs: str, limits: tuple[Limit, ...], scope: str = "") -> Callable[[Answer], Answer]:
    """Enter a function into the table of methods."""

    def enter(answer: Answer) -> Answer:
        METHODS[name] = Method(answer, needs, scope, limits)
        return answer

    return enter


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
