"""Parse and measure external JSON without exhausting the stack.

Python's `json` takes about 990 levels, `deepcopy` 500, pydantic's JSON serializer 255 and amplifier-core's 128, all
minus the frames of the caller. Values that stay below the limits here can be handled everywhere.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

# Maximum levels of lists and objects in one external value: a call's arguments, a result, a tool's schema.
MAX_NESTING = 100
# Maximum levels in a row of a conversation, which wraps such values.
MAX_ROW_NESTING = MAX_NESTING + 20
# Counting stops here: only a value that contains itself is deeper.
_MAX_COUNTED = 100_000

_CONTAINERS = (dict, list, tuple)
_SHARED_FROM = 100
# Maximum lists and objects in a copy: shared parts could double from level to level.
_MAX_COPIED = 200_000
_PLAIN_VALUE_CHARS = 8
_SMALL_PART_CHARS = 1_000
_PLAIN = frozenset({int, float, bool, type(None)})
_SCALARS = _PLAIN | {str}
_CUT_OFF = "[… nested too deeply: left out here …]"


class NestedTooDeeply(ValueError):  # noqa: N818 - a fact about the JSON
    """JSON has more levels than its reader allows."""

    def __init__(self, max_levels: int) -> None:
        super().__init__(f"nested more than {max_levels} levels deep")


def parse_json(text: str | bytes, max_levels: int = MAX_NESTING) -> Any:
    """Parse external JSON.

    Raises:
        NestedTooDeeply: more than `max_levels` levels.
        ValueError: the text is not JSON.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise NestedTooDeeply(max_levels) from None
    if may_be_deeper(text, max_levels) and nesting(value, max_levels) > max_levels:
        raise NestedTooDeeply(max_levels)
    return value


def may_be_deeper(text: str | bytes, max_levels: int) -> bool:
    """Return False if JSON has too few brackets for more than `max_levels` levels. Faster than `nesting`."""
    brackets = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    return sum(map(text.count, brackets)) > max_levels  # type: ignore[arg-type] # both are of the text's type


def nesting(value: Any, max_levels: int = _MAX_COUNTED) -> int:
    """Return the number of levels of lists and objects in a value; counting stops above `max_levels`."""
    depth, level = 0, [value] if isinstance(value, _CONTAINERS) else []
    while level and depth <= max_levels:
        depth += 1
        inside: list[Any] = []
        for each in level:  # a plain loop, because this runs for every row
            for child in each.values() if isinstance(each, dict) else each:
                if type(child) not in _SCALARS and isinstance(child, _CONTAINERS):
                    inside.append(child)  # noqa: PERF401 - a comprehension is a call more
        if len(inside) > _SHARED_FROM:  # shared parts are counted once: they could double from level to level
            inside = list({id(each): each for each in inside}.values())
        level = inside
    return depth


def expanded_size(value: Any, max_chars: int) -> int:
    """Estimate the characters of a value without writing it as text; stop counting past `max_chars`.

    Parts that are shared count each time, as in JSON. Parts that `bounded` cuts off do not count.
    """
    size = 0
    # Sizes of large parts, so that a shared part is traversed only once.
    counted: dict[int, int] = {}
    around, before = [0], [0]
    stack: list[Iterator[Any]] = [iter((value,))]
    while stack and size <= max_chars:
        for item in stack[-1]:
            size += 1
            if type(item) is str or isinstance(item, str | bytes | bytearray):
                size += len(item)
            elif type(item) in _PLAIN or (inside := _inside(item)) is None:
                size += _PLAIN_VALUE_CHARS
            elif id(item) in counted:
                size += counted[id(item)]
            elif len(stack) <= MAX_ROW_NESTING and id(item) not in around:
                stack.append(inside)
                around.append(id(item))
                before.append(size)
                break
            if size > max_chars:
                break
        else:
            stack.pop()
            part, part_size = around.pop(), size - before.pop()
            if part_size > _SMALL_PART_CHARS:
                counted[part] = part_size
    return size


def _inside(value: Any) -> Iterator[Any] | None:
    match value:
        case dict():
            return chain.from_iterable(value.items())
        case list() | tuple() | set() | frozenset():
            return iter(value)
        case BaseModel():
            return iter(vars(value).values())
    return None


def bounded(value: Any, max_levels: int = MAX_NESTING) -> Any:
    """Return the value; if it has more than `max_levels` levels, a copy in which a mark replaces deeper parts.

    The number of parts in the copy is bounded; marks replace the rest.
    """
    if type(value) is dict and max_levels:
        for part in value.values():
            if isinstance(part, _CONTAINERS):
                break
        else:  # most rows of results have one level
            return value
    return value if nesting(value, max_levels) <= max_levels else _Copy().of(value, max_levels)


class _Copy:
    """Copies a value; stops at the maximum depth and at values that contain themselves."""

    def __init__(self) -> None:
        self._left = _MAX_COPIED

    def of(self, value: Any, levels: int, around: tuple[int, ...] = ()) -> Any:
        if not isinstance(value, _CONTAINERS):
            return value
        if levels == 0 or id(value) in around or self._left <= 0:
            return _CUT_OFF
        self._left -= 1
        around = (*around, id(value))
        if isinstance(value, dict):
            return {key: self.of(item, levels - 1, around) for key, item in value.items()}
        return [self.of(item, levels - 1, around) for item in value]
