from __future__ import annotations

import re

import pytest

from orchestrator_interactive.validation.runner import NotCheckedError
from orchestrator_interactive.validation.tools_and_hooks import InputGenerator

_NO_PROMISE = ("side_effect_free = True", "")
_OBJECT_OUTPUT = ('{"words": len(text.split())}', "object()")


def outcome_of(report, key) -> tuple[str, str]:
    [finding] = [finding for finding in report.findings if finding.key == key]
    return finding.outcome, finding.problem


def generate(schema, *, every_property: bool = False):
    return InputGenerator(schema, every_property=every_property).generate(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 6}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2026-01-15"),
        ({"type": "string", "pattern": "^[0-9]+$"}, "1"),
        ({"type": "string", "enum": ["b", "c"]}, "b"),
        ({"type": "string", "enum": ["b", "c"], "default": "c"}, "c"),
        ({"const": 7}, 7),
        ({"type": "integer", "examples": [5], "default": 3}, 5),
        ({"type": "integer", "minimum": 4}, 4),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "minimum": 10, "multipleOf": 4}, 12),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "boolean"}, False),
        ({"type": ["string", "null"]}, "text"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, 1),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "items": {"type": "integer"}}, []),
        ({"type": "object", "properties": {"y": {"type": "string"}, "z": {}}, "required": ["y"]}, {"y": "text"}),
        ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, 2),
        ({"$ref": "#/$defs/Days", "$defs": {"Days": {"type": "integer", "minimum": 2}}}, 2),
    ],
    ids=str,
)
def test_a_generated_value_is_valid_and_plain(schema, value):
    assert generate(schema) == value


def test_a_generated_input_has_the_required_properties_or_every_property():
    properties = {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}}
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    assert generate(schema) == {"a": "text"}
    assert generate(schema, every_property=True) == {"a": "text", "b": [1]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            {"type": "string", "pattern": "^x{9}$"},
            'No input could be generated for the schema {"type": "string", "patt',
        ),
        ({"properties": {"x": {"$ref": "#"}}, "required": ["x"]}, "Its schema is recursive without an end."),
    ],
)
def test_a_schema_without_a_plain_value_is_reported(schema, reason):
    with pytest.raises(NotCheckedError, match=re.escape(reason)):
        generate(schema)


async def test_a_tool_with_side_effects_is_not_called_with_valid_input(checker):
    report = await checker.report(checker.changed("tool_words", _NO_PROMISE, _OBJECT_OUTPUT))
    assert report.passed
    assert report.complete
    assert outcome_of(report, "executes_valid_input") == ("not checked", "The tool may have side effects.")
    assert outcome_of(report, "output_is_plain") == ("not checked", "No call succeeded.")


async def test_a_tool_with_side_effects_is_called_with_the_given_input(checker):
    path = checker.changed("tool_words", _NO_PROMISE, _OBJECT_OUTPUT)
    report = await checker.report(path, given={"text": "one two"})
    assert outcome_of(report, "executes_valid_input") == ("passed", "")
    assert "execute() with the input that was given" in outcome_of(report, "output_is_plain")[1]


async def test_a_refused_valid_input_is_reported_with_the_reason_of_the_tool(checker):
    path = checker.changed("tool_words", ("if not isinstance(text, str):", "if text != 'something':"))
    outcome, reason = outcome_of(await checker.report(path), "executes_valid_input")
    assert outcome == "not checked"
    assert reason.startswith("count_words: execute() with a value for every property fails: text is required")


async def test_each_of_several_tools_gets_its_own_input(checker):
    mount = '    await coordinator.mount("tools", tool, name=tool.name)\n'
    other = "    other = CountWords()\n    other.name = 'other'\n    other.execute = tool.execute\n"
    second = "    await coordinator.mount('tools', other, name='other')\n"
    path = checker.changed("tool_words", _NO_PROMISE, (mount, mount + other + second))
    report = await checker.report(path, given={"other": {"text": "one"}})
    reason = "count_words: The tool may have side effects."
    assert outcome_of(report, "executes_valid_input") == ("not checked", reason)
    assert outcome_of(report, "output_is_plain") == ("passed", "")


async def test_the_wrong_one_of_several_tools_is_named(checker):
    mount = '    await coordinator.mount("tools", tool, name=tool.name)\n'
    other = "    other = CountWords()\n    other.description = ' '\n"
    second = "    await coordinator.mount('tools', other, name='other')\n"
    report = await checker.report(checker.changed("tool_words", (mount, mount + other + second)))
    assert outcome_of(report, "implements_protocol") == ("failed", "other: Its description is ' ', not a text.")


@pytest.mark.parametrize("options", ["None", '["allow once", "No"]'])
async def test_a_question_with_an_option_that_allows_is_complete(checker, options):
    question = f'action="ask_user", approval_prompt="May I?", approval_options={options}'
    path = checker.changed("hooks_guard", ("    return HookResult()\n", f"    return HookResult({question})\n"))
    assert not (await checker.report(path)).of("warning")
