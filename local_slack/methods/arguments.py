"""The arguments of one Web API call, from the query, a form or JSON, validated as in Slack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from local_slack.json_limits import parse_json
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

_TRUE = {"1", "true", "t", "yes"}
_MAX_LIMIT = 999
Word = TypeVar("Word", bound=str)


async def read_arguments(request: web.Request) -> Mapping[str, Any]:
    """Merge query and body; the body wins. As in Slack, a token is read from a form or the header only."""
    values: dict[str, Any] = {name: value for name, value in request.query.items() if name != "token"}
    if request.method != "POST":
        return values
    if request.content_type == "application/json":
        return values | await _json_body(request)
    form = await request.post()
    return values | {name: value for name, value in form.items() if isinstance(value, str)}


async def _json_body(request: web.Request) -> dict[str, Any]:
    raw = await request.text()
    if not raw:
        return {}
    try:
        body = parse_json(raw)
    except ValueError as e:
        raise SlackRefused("invalid_json") from e
    if not isinstance(body, dict):
        raise SlackRefused("json_not_object")
    return {name: value for name, value in body.items() if name != "token"}


class Arguments:
    """Read named arguments; refuse values of the wrong type."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if value is not None}

    def need(self, *names: str) -> None:
        """Refuse a call without one of the named arguments. As in Slack, an empty value counts as present."""
        missing = [name for name in names if name not in self._values]
        if missing:
            raise invalid(*(f"[ERROR] missing required field: {name}" for name in missing))

    def given(self) -> dict[str, Any]:
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

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name, default)
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

    def objects(self, name: str, refusal: str) -> tuple[dict[str, Any], ...] | None:
        """Return a list of objects, given as a list or as JSON text; ``refusal`` is the error code."""
        value = self._decoded(name, refusal)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise SlackRefused(refusal)
        return tuple(value)

    def object(self, name: str, refusal: str) -> dict[str, Any] | None:
        value = self._decoded(name, refusal)
        if value is not None and not isinstance(value, dict):
            raise SlackRefused(refusal)
        return value

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
