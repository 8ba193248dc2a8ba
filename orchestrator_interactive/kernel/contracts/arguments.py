"""Parse the arguments of a tool call that a model sent.

Arguments that cannot be used become `{"INVALID_JSON": text}`, the form in which Anthropic's API accepts them in the
history. It is plain data, so providers, contexts and logs keep it, and it has the same meaning after a restart.
"""

from __future__ import annotations

import json
from typing import Any

from orchestrator_interactive.json_limits import (
    MAX_NESTING,
    NestedTooDeeply,
    bounded,
    expanded_size,
    nesting,
    parse_json,
)

INVALID_JSON = "INVALID_JSON"
# Characters kept of a text that is not JSON; the model reads them in its next call.
MAX_INVALID_CHARS = 50_000
# Maximum size of an object; shared parts count each time.
_MAX_CHARS = 50_000_000
_SHORT_CHARS, _SHORT_BITS, _FEW = 10_000, 1_000, 100
_SCALARS = frozenset({float, bool, type(None)})
_KINDS = {type(None): "null", bool: "true or false", str: "a string", list: "a list"}

_AGAIN = "The tool was not started. Call it again with one complete JSON object that fits its schema."
_FLATTER = "The tool was not started. Call it again with fewer levels, for example with the inner part as a JSON text."


def arguments_of(given: Any) -> dict[str, Any]:
    """Return the arguments of a call, given as an object or as JSON text.

    A blank text, null and `None` mean no arguments: models and gateways send these for tools without parameters.
    """
    if given is None or (isinstance(given, str) and given.strip() in ("", "null")):
        return {}
    if isinstance(given, str):
        try:
            parsed = parse_json(given)
        except ValueError:
            return invalid(given)
        return parsed if isinstance(parsed, dict) else invalid(given)
    if not isinstance(given, dict):
        return invalid(_text_of(given))
    is_usable = _is_flat(given) or (nesting(given, MAX_NESTING) <= MAX_NESTING and not _is_huge(given))
    return given if is_usable else invalid(_text_of(given))


def writable(given: Any) -> dict[str, Any]:
    """Return the arguments as `arguments_of` does; values that JSON cannot encode make them invalid."""
    if isinstance(given, dict) and _is_flat(given):
        return given
    arguments = arguments_of(given)
    try:
        json.dumps(arguments)
    except (TypeError, ValueError):
        return invalid(_text_of(arguments))
    return arguments


def invalid(text: str) -> dict[str, Any]:
    """Return the arguments of a call whose input cannot be used."""
    return {INVALID_JSON: text[:MAX_INVALID_CHARS]}


def problem_of(arguments: dict[str, Any]) -> str | None:
    """Return why a tool cannot be called with these arguments, and the remedy; `None` if it can."""
    text = arguments.get(INVALID_JSON)
    if len(arguments) != 1 or not isinstance(text, str):
        return None
    try:
        parsed = parse_json(text)
    except NestedTooDeeply as e:
        return f"The arguments of this call are {e}. {_FLATTER}"
    except ValueError as e:
        why = str(e) if len(text) < MAX_INVALID_CHARS else f"an error after more than {MAX_INVALID_CHARS} characters"
        return f"The arguments of this call are not valid JSON: {why}. {_AGAIN}"
    if isinstance(parsed, dict):
        return f"The arguments of this call cannot be used: they contain values that JSON cannot encode. {_AGAIN}"
    return f"The arguments of this call are {_KINDS.get(type(parsed), 'a number')}, not a JSON object. {_AGAIN}"


def _is_flat(given: dict[Any, Any]) -> bool:
    """Return whether an object has only short texts, numbers, booleans and nulls, as most calls do."""
    for key, value in given.items():
        kind = type(value)
        if kind is str:
            is_short = len(value) <= _SHORT_CHARS
        else:
            is_short = value.bit_length() <= _SHORT_BITS if kind is int else kind in _SCALARS
        if not is_short or type(key) is not str:
            return False
    return len(given) < _FEW


def _is_huge(given: Any) -> bool:
    return expanded_size(given, _MAX_CHARS) > _MAX_CHARS


def _text_of(given: Any) -> str:
    if _is_huge(given):
        return "(too large for JSON)"
    for value in (given, bounded(given, MAX_NESTING + 1)):
        try:
            return json.dumps(value, default=str, skipkeys=True)
        except (TypeError, ValueError, RecursionError):
            continue
    return "(cannot be encoded as JSON)"
