"""The inputs of a recipe: a subset of JSON Schema, defaults, and texts that people write as `key=value`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import Field, field_validator, model_validator

from orchestrator_interactive.config import Options
from orchestrator_interactive.json_limits import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["string", "integer", "number", "boolean", "array", "object"]


class RecipeInput(Options):
    """One input: keywords of JSON Schema, and whether it is `required`, which it is without a `default`."""

    type: Kind = "string"
    description: str = ""
    required: bool = True
    default: Any = None
    enum: list[Any] | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = Field(None, alias="minLength")
    max_length: int | None = Field(None, alias="maxLength")
    pattern: str | None = None
    min_items: int | None = Field(None, alias="minItems")
    max_items: int | None = Field(None, alias="maxItems")
    items: RecipeInput | None = None

    @field_validator("pattern")
    @classmethod
    def _is_pattern(cls, pattern: str | None) -> str | None:
        try:
            Draft202012Validator.check_schema({"pattern": pattern or ""}, format_checker=_FORMATS)
        except SchemaError as e:
            raise ValueError(f"{pattern!r} is not a regular expression") from e
        return pattern

    @model_validator(mode="after")
    def _default_fits(self) -> RecipeInput:
        schema = _without_patterns(self.json_schema)  # a pattern of an unchecked recipe may never end
        if self.default is not None and (problems := _problems(schema, self.default)):
            raise ValueError(f"the default does not fit: {problems[0]}")
        return self

    @property
    def json_schema(self) -> dict[str, Any]:
        made = self.model_dump(exclude_none=True, exclude={"required", "default", "items"}, by_alias=True)
        return made if self.items is None else {**made, "items": self.items.json_schema}

    @property
    def is_required(self) -> bool:
        return self.required and self.default is None

    def parse(self, text: str) -> Any:
        """Return the value that a text stands for; a text of another form stays one, and does not fit."""
        if self.type == "string":
            return text
        try:
            return parse_json(text)
        except ValueError:
            return [each.strip() for each in text.split(",")] if self.type == "array" else text


_FORMATS = Draft202012Validator.FORMAT_CHECKER


def checked_inputs(declared: Mapping[str, RecipeInput], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with their defaults; an optional input without one is `None`.

    Raises:
        ValueError: one sentence for each problem.
    """
    problems = [f"There is no input '{name}'; there are: {_names(declared)}." for name in given if name not in declared]
    inputs: dict[str, Any] = {}
    for name, each in declared.items():
        value = inputs[name] = given.get(name, each.default)
        if value is not None:
            problems += [f"Input '{name}': {problem}." for problem in _problems(each.json_schema, value)]
        elif each.is_required:
            problems.append(
                f"Input '{name}' is missing" + (f": {each.description.rstrip('.')}." if each.description else ".")
            )
    if problems:
        raise ValueError(" ".join(problems))
    return inputs


def parsed_inputs(declared: Mapping[str, RecipeInput], words: Iterable[str]) -> dict[str, Any]:
    """Return the inputs of words `key=value`.

    Raises:
        ValueError: a word has another form.
    """
    inputs = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is no input: write key=value, and quote a value with spaces.")
        inputs[name] = declared[name].parse(text) if name in declared else text
    return inputs


def _problems(schema: dict[str, Any], value: Any) -> list[str]:
    errors = Draft202012Validator(schema).iter_errors(value)
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}".removeprefix(": ") for e in errors]


def _names(declared: Mapping[str, RecipeInput]) -> str:
    return ", ".join(declared) or "none"


def _without_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    items = {"items": _without_patterns(schema["items"])} if "items" in schema else {}
    return {**{name: value for name, value in schema.items() if name != "pattern"}, **items}


def usage(name: str, declared: Mapping[str, RecipeInput]) -> str:
    """Return how to write the inputs of a recipe, such as `code_review path=… [focus="…"]`."""
    words = []
    for each, given in declared.items():
        word = f"{each}={'…' if given.default is None else json.dumps(given.default, ensure_ascii=False)}"
        words.append(word if given.is_required else f"[{word}]")
    return " ".join((name, *words))
