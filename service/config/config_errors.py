"""Errors of the configuration. Their messages never repeat a value: it may be a misplaced token."""

from __future__ import annotations

import difflib
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# Messages by pydantic's error types.
_WRONG = {
    "missing": "is missing",
    "invalid_key": "must be a text key; put it into quotes",
    "string_type": "must be text; put it into quotes",
    "path_type": "must be text: the path of a folder",
    "tuple_type": "must be a list, such as `[one, two]`",
    "frozen_set_type": "must be a list, such as `[one, two]`",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping, with lines such as `key: value`",
    "model_type": "must be a mapping, with lines such as `key: value`",
    "too_short": "must have at least one entry",
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "less_than_equal": "must be {le:g} or less",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "value_error": "{error}",
}
# Values of a form that has a name, by key.
_FORMS = {
    "emoji": "must be an emoji code such as `:owl:`, in quotes",
    "command": "must be a slash and at most 31 of a-z, 0-9, _ and -, such as `/agent`",
}


class ConfigError(Exception):
    """The configuration cannot be used; the message names the key and the fix."""


def sentence(error: ErrorDetails, kind: type[BaseModel]) -> str:
    """Return the message for one error of a file that is validated as the model `kind`."""
    loc = error["loc"]
    key = ".".join(str(part) for part in loc if part != "[key]")
    if error["type"] == "extra_forbidden":
        valid = _siblings(loc, kind)
        close = difflib.get_close_matches(str(loc[-1]), valid, 1, 0.75)
        return f"{key}: unknown key; {f'did you mean {close[0]}? V' if close else 'v'}alid keys: {', '.join(valid)}."
    if loc[-1] == "[key]":
        return f"{key}: {_WRONG['invalid_key']}."
    if error["input"] is None:
        value = "write `[]` for none" if error["type"] == "tuple_type" else "give it a value"
        return f"{key}: is blank; {value}, or leave the key out."
    wrong = _WRONG.get(error["type"], error["msg"][0].lower() + error["msg"][1:])
    if error["type"] == "string_pattern_mismatch":
        wrong = _FORMS.get(str(loc[-1]), wrong)
    return f"{key}: {wrong.format(**error.get('ctx', {}))}."


def _siblings(loc: tuple[int | str, ...], kind: type[BaseModel]) -> list[str]:
    """Return the valid keys next to an unknown one."""
    parent: Any = kind
    for part in loc[:-1]:
        parent = _value_type(parent, part)
    return list(parent.model_fields)


def _value_type(parent: Any, part: int | str) -> Any:
    """Return the type of a model's field, a mapping's values or a list's items."""
    if isinstance(parent, type) and issubclass(parent, BaseModel):
        found = parent.model_fields[str(part)].annotation
    else:
        found = get_args(parent)[1 if get_origin(parent) is dict else 0]
    if get_origin(found) is UnionType:
        (found,) = (each for each in get_args(found) if each is not NoneType)
    return found
