"""Inputs that are made from a schema fit it."""

from __future__ import annotations

import re

import pytest

from orchestrator_interactive.validation.tool.input_generation import Unfit, fitting


def made(about, **beside):
    schema = {"type": "object", "properties": {"x": about}, "required": ["x"], **beside}
    return next(iter(fitting(schema)))[1]["x"]


@pytest.mark.parametrize(
    ("about", "value"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 6}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2026-01-15"),
        ({"type": "string", "pattern": "^t"}, "text"),
        ({"type": "string", "enum": ["b", "c"]}, "b"),
        ({"type": "string", "enum": ["b", "c"], "default": "c"}, "c"),
        ({"const": 7}, 7),
        ({"type": "integer", "examples": [5], "default": 3}, 5),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 4}, 4),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "minimum": 10, "multipleOf": 4}, 12),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "number", "minimum": 3}, 4),
        ({"type": "boolean"}, False),
        ({"type": ["string", "null"]}, "text"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, 1),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "items": {"type": "integer"}}, []),
        (
            {"type": "object", "properties": {"y": {"type": "string"}, "z": {}}, "required": ["y"]},
            {"y": "text"},
        ),
        ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, 2),
        (True, "text"),
    ],
)
def test_a_value_is_what_its_schema_asks_for(about, value):
    assert made(about) == value


def test_a_schema_may_refer_to_a_part_of_it():
    assert made({"$ref": "#/$defs/Days"}, **{"$defs": {"Days": {"type": "integer", "minimum": 2}}}) == 2


def test_there_is_one_with_what_is_required_and_one_with_everything():
    properties = {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}}
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    assert [given for _, given in fitting(schema)] == [{"a": "text"}, {"a": "text", "b": [1]}]


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"type": "string", "pattern": "^[0-9]+$"}, "It asks for a text of the pattern ^[0-9]+$."),
        ({"type": "date"}, "Its schema has the type 'date'."),
        ({"$ref": "#/$defs/Nothing"}, "Its schema refers to #/$defs/Nothing, which is not in it."),
        ({"$ref": "#"}, "Its schema is recursive without an end."),
    ],
)
def test_what_cannot_be_made_up_is_told(about, said):
    with pytest.raises(Unfit, match=re.escape(said)):
        made(about)
