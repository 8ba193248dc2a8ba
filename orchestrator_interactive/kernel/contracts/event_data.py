"""The data of an event on its way through amplifier_core's registry, which sends it through JSON and back."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import BaseModel


def as_json(data: dict[str, Any]) -> dict[str, Any]:
    """Event data as the registry takes it: models as dictionaries, everything else that JSON does not know as text.

    The registry refuses an event over a NaN, a number of more than 64 bits or half a surrogate pair; these become text.
    """
    text = json.dumps(data, default=_plain, skipkeys=True, ensure_ascii=False)
    plain: dict[str, Any] = json.loads(text.encode(errors="replace"), parse_constant=str, parse_int=_whole_number)
    return plain


def changes(sent: dict[str, Any], returned: dict[str, Any] | None) -> dict[str, Any]:
    """What hooks changed of the data that was sent to them: it comes back from the registry whether they did or not.

    What they left alone can so stay the object that it was, rather than what JSON made of it.
    """
    back = returned or {}
    return {key: back[key] for key in sent if key in back and not _same(back[key], sent[key])}


def _same(one: Any, other: Any) -> bool:
    """Whether these are the same, but for the last digit of a fraction, which the registry does not keep."""
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
