"""Validate external input: a module's configuration, a tool's input."""

from __future__ import annotations

import difflib
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import structlog
from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

log = structlog.get_logger(__name__)


class Options(BaseModel):
    """Validated, immutable values; unknown names are refused.

    `without_effect` names options that have no effect here, but that configurations of another implementation of the
    module contain. `validate` accepts them with a warning.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    without_effect: ClassVar[frozenset[str]] = frozenset()


ModelT = TypeVar("ModelT", bound=BaseModel)


def validate(kind: type[ModelT], given: Mapping[str, Any], subject: str) -> ModelT:
    """Validate a mapping against a model; `subject` names it in the error and in the log.

    Raises:
        ValueError: one sentence per problem, with the remedy.
    """
    without_effect: frozenset[str] = getattr(kind, "without_effect", frozenset())
    if without_effect and (ignored := sorted(without_effect.intersection(given))):
        given = {name: value for name, value in given.items() if name not in without_effect}
        log.warning(
            "module.options_without_effect",
            module=subject,
            options=ignored,
            what_to_do="remove them: only another implementation of this module has them",
        )
    try:
        return kind.model_validate(given)
    except ValidationError as e:
        problems = " ".join(_sentence(kind, error) for error in e.errors())
        raise ValueError(f"{subject}: {problems}") from e


def schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a tool's input without its titles, which language models do not need."""
    return deepcopy(_schema(kind))


@cache
def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the schema; its generation takes milliseconds, and each session of an agent needs it."""
    untitled: dict[str, Any] = _untitled(kind.model_json_schema())
    return untitled


def _sentence(kind: type[BaseModel], error: ErrorDetails) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        for alias in (field.validation_alias for field in kind.model_fields.values()):
            if isinstance(alias, AliasChoices) and where in alias.choices:
                return f"{' and '.join(map(repr, alias.choices))} are names of the same option; give only one."
        return f"there is no '{where}'{_known(kind, error)}."
    if error["type"] == "missing":
        field = kind.model_fields.get(where)
        hint = f" It is: {field.description}" if field and field.description else ""
        return f"'{where}' is missing.{hint}"
    message = error["msg"].removeprefix("Value error, ")
    return f"'{where}': {message}." if where else f"{message}."


def _known(kind: type[BaseModel], error: ErrorDetails) -> str:
    if len(error["loc"]) > 1:
        return ""
    close = difflib.get_close_matches(str(error["loc"][0]), kind.model_fields, 1, 0.75)
    return f"; {f'did you mean {close[0]!r}? T' if close else 't'}here are: {', '.join(kind.model_fields)}"


def _untitled(node: Any) -> Any:
    match node:
        case dict():
            # Keep a property named "title": its value is a schema, whereas the title of a schema is a string.
            return {k: _untitled(v) for k, v in node.items() if k != "title" or not isinstance(v, str)}
        case list():
            return [_untitled(item) for item in node]
        case _:
            return node
