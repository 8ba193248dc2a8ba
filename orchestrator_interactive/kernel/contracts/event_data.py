"""Event data for amplifier_core's registry, which converts it to JSON and back."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import BaseModel


def as_json(data: dict[str, Any]) -> dict[str, Any]:
    """Convert event data to JSON values: models become dictionaries, other values that JSON cannot encode become text.

    NaN, integers of more than 64 bits and lone surrogates become text too: the registry refuses events with them.
    """
    text = json.dumps(data, default=_plain, skipkeys=True, ensure_ascii=False)
    plain: dict[str, Any] = json.loads(text.encode(errors="replace"), parse_constant=str, parse_int=_whole_number)
    return plain


def changes(sent: dict[str, Any], returned: dict[str, Any] | None) -> dict[str, Any]:
    """Return the values that hooks changed; the registry returns unchanged data too.

    The caller can keep its original objects for unchanged values instead of their JSON form.
    """
    back = returned or {}
    return {key: back[key] for key in sent if key in back and not _same(back[key], sent[key])}


def _same(one: Any, other: Any) -> bool:
    """Compare values; floats may differ in the last digit, which the registry does not preserve."""
    if one == other:
        return True
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(_same, one, other))
        case float(), float():
            return math.isclose(one, other, rel_tol=1e-12)
        case _:
            return False


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else str(value)


def _whole_number(digits: str) -> int | str:
    number = int(digits)
    return number if -(2**63) <= number < 2**64 else digits
