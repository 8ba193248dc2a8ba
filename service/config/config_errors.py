"""What is wrong with a configuration file, in sentences that never repeat what was given."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# By the kinds of error that pydantic tells. What was given is never repeated: it may be a token in the wrong place.
_WRONG = {
    "missing": "is missing",
    "invalid_key": "is a key that is not text; put it into quotes",
    "string_type": "must be text; put it into quotes",
    "path_type": "must be text: the path of a folder",
    "tuple_type": "must be a list, such as `[one, two]`",
    "frozen_set_type": "must be a list, such as `[one, two]`",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping, with lines such as `key: value`",
    "model_type": "must be a mapping, with lines such as `key: value`",
    "too_short": "must have at least one entry",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must be an emoji code such as `:owl:`, in quotes",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "value_error": "{error}",
}


def sentence(error: ErrorDetails, kind: type[BaseModel]) -> str:
    """What is wrong at one place of a file that is to hold a model of this kind."""
    loc = error["loc"]
    key = ".".join(str(part) for part in loc if part != "[key]")
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key; there are: {', '.join(_siblings(loc, kind))}."
    if loc[-1] == "[key]":
        return f"{key}: {_WRONG['invalid_key']}."
    if error["input"] is None:
        value = "write `[]` for none" if error["type"] == "tuple_type" else "give it a value"
        return f"{key}: is blank; {value}, or leave the key out."
    wrong = _WRONG.get(error["type"], error["msg"][0].lower() + error["msg"][1:])
    return f"{key}: {wrong.format(**error.get('ctx', {}))}."


def _siblings(loc: tuple[int | str, ...], kind: type[BaseModel]) -> list[str]:
    """The keys that may stand where an unknown one stood."""
    place: Any = kind
    for part in loc[:-1]:
        place = _inside(place, part)
    return list(place.model_fields)


def _inside(place: Any, part: int | str) -> Any:
    """What stands under a key of a model or of a mapping, or in a list."""
    if isinstance(place, type) and issubclass(place, BaseModel):
        found = place.model_fields[str(part)].annotation
    else:
        found = get_args(place)[1 if get_origin(place) is dict else 0]
    if get_origin(found) is UnionType:
        (found,) = (each for each in get_args(found) if each is not NoneType)
    return found
