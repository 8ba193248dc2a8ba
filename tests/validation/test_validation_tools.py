from __future__ import annotations

import pytest
from example_modules import Mutant

from orchestrator_interactive.validation.tool import rules, schemas

_EXECUTE = """        text = input.get("text")
        if not isinstance(text, str):
            return ToolResult(success=False, error={"message": "text is required, and must be a text."})
"""
_SCHEMA = '"properties": {"text": {"type": "string"}, "lines": {"type": "boolean"}},'

BROKEN = {
    "a capital in the name": Mutant(
        'name = "count_words"', 'name = "countWords"', (rules.name_in_snake_case,), "A tool is called 'countWords'."
    ),
    "no schema": Mutant(
        "get_schema", "schema", (schemas.has_schema,), "count_words has neither get_schema() nor input_schema."
    ),
    "a schema of another type": Mutant(
        '"type": "object"', '"type": "string"', (schemas.schema_is_an_object,), "its 'type' is 'string', not 'object'."
    ),
    "a schema that is a text": Mutant(
        'return {\n            "type"', 'return "{}" and "schema" or {"type"', (schemas.schema_is_an_object,), "a str"
    ),
    "a schema that raises": Mutant(
        "    def get_schema(self):\n",
        "    def get_schema(self):\n        raise KeyError('text')\n",
        (schemas.schema_is_an_object,),
        "reading it raises KeyError: 'text' (tool_words.py, line 12).",
    ),
    "properties that are a list": Mutant(
        _SCHEMA, '"properties": ["text"],', (schemas.schema_is_an_object,), "its 'properties' are a list"
    ),
    "a property that is a text": Mutant(
        '{"type": "string"}', '"string"', (schemas.schema_is_an_object,), "its property 'text' is a str."
    ),
    "required names that are a text": Mutant(
        '["text"]', '"text"', (schemas.schema_is_an_object,), "its 'required' is a str, not a list."
    ),
    "a required name that is no property": Mutant(
        '["text"]', '["text", "words"]', (schemas.schema_is_an_object,), "it requires 'words'"
    ),
    "a schema that JSON cannot hold": Mutant(
        '{"type": "boolean"}', '{"type": {"boolean"}}', (schemas.schema_is_an_object,), "cannot be written as JSON"
    ),
    "nothing is checked": Mutant(
        _EXECUTE,
        '        text = input["text"]\n',
        (rules.does_not_raise,),
        "count_words: execute() with {} raises KeyError: 'text' (tool_words.py, line 19).",
    ),
    "wrong types are not expected": Mutant(
        "if not isinstance(text, str):",
        "if text is None:",
        (rules.does_not_raise,),
        "with values of the wrong types raises AttributeError: 'list' object has no attribute 'split'",
    ),
    "it ends with a cancellation": Mutant(
        _EXECUTE,
        "        import asyncio\n        raise asyncio.CancelledError\n",
        (rules.does_not_raise,),
        "with {} ends with a CancelledError although it was not cancelled.",
    ),
    "it divides by zero as soon as the input is right": Mutant(
        '        return ToolResult(output={"words": len(text.split())})\n',
        "        return 1 / 0\n",
        (rules.does_not_raise,),
        "count_words: execute() with the required properties only raises ZeroDivisionError: division by zero",
    ),
    "it fails on what is optional": Mutant(
        '        return ToolResult(output={"words": len(text.split())})\n',
        '        return ToolResult(output={"words": 1 / (0 if "lines" in input else 1)})\n',
        (rules.does_not_raise,),
        "count_words: execute() with a value for every property raises ZeroDivisionError: division by zero",
    ),
    "it answers with an object as soon as the input is right": Mutant(
        '{"words": len(text.split())}',
        '{"plain": object()}',
        (rules.output_is_plain,),
        "count_words: execute() with the required properties only gives an output that cannot be written as JSON",
    ),
    "it exits": Mutant(_EXECUTE, "        raise SystemExit(3)\n", (rules.does_not_raise,), "raises SystemExit: 3"),
    "it waits for ever": Mutant(
        _EXECUTE,
        "        import asyncio\n        await asyncio.Event().wait()\n",
        (rules.ends_in_time,),
        "count_words: execute() with {} does not end within 0.3 seconds.",
        limit_s=0.3,
    ),
    "it returns a text": Mutant(
        _EXECUTE, '        return "no text"\n', (rules.returns_a_result,), "execute() with {} returns a str."
    ),
    "it returns nothing": Mutant(_EXECUTE, "        return\n", (rules.returns_a_result,), "with {} returns None."),
    "what is missing is no failure": Mutant(
        "if not isinstance(text, str):\n            return ToolResult(success=False, error={",
        "if not isinstance(text, str):\n            return ToolResult(output={",
        (rules.missing_input_fails,),
        "count_words: execute() with {} succeeds, though its schema requires text.",
    ),
    "a failure without a word": Mutant(
        ', error={"message": "text is required, and must be a text."}',
        "",
        (rules.failures_have_message,),
        "fails, and neither its error['message'] nor its output says why.",
    ),
    "an output that is an object": Mutant(
        "success=False, error=",
        "success=False, output=object(), error=",
        (rules.output_is_plain,),
        "Object of type object",
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_tool_that_breaks_a_rule_is_told_so(check_broken, broken):
    await check_broken("tool_words", broken)


def test_every_rule_for_tools_has_been_seen_broken():
    assert {broken.rules[0] for broken in BROKEN.values()} == set(rules.RULES)


def outcome_of(report, rule):
    [finding] = [finding for finding in report.findings if finding.check == rule.check]
    return finding.outcome, finding.problem


async def test_a_tool_that_may_have_side_effects_is_not_called_with_what_fits(examiner):
    path = examiner.changed("tool_words", ("side_effect_free = True", ""), ('{"words": len(text.split())}', "object()"))
    report = await examiner.examine(path)
    assert report.passed
    assert report.complete
    assert outcome_of(report, rules.takes_a_fitting_input) == ("not checked", "The tool may have side effects.")
    assert outcome_of(report, rules.output_is_plain) == ("not checked", "No call succeeded.")


async def test_a_tool_that_may_have_side_effects_is_called_with_what_is_given(examiner):
    path = examiner.changed("tool_words", ("side_effect_free = True", ""), ('{"words": len(text.split())}', "object()"))
    report = await examiner.examine(path, given={"text": "one two"})
    assert outcome_of(report, rules.takes_a_fitting_input) == ("passed", "")
    assert "execute() with the input that was given" in outcome_of(report, rules.output_is_plain)[1]


async def test_a_tool_that_refuses_what_fits_is_told_so(examiner):
    path = examiner.changed("tool_words", ("if not isinstance(text, str):", "if text != 'something':"))
    outcome, reason = outcome_of(await examiner.examine(path), rules.takes_a_fitting_input)
    assert outcome == "not checked"
    assert reason.startswith("count_words: execute() with a value for every property fails: text is required")


async def test_of_several_tools_each_has_its_own_input(examiner):
    mount = '    await coordinator.mount("tools", tool, name=tool.name)\n'
    other = "    other = CountWords()\n    other.name = 'other'\n    other.execute = tool.execute\n"
    second = "    await coordinator.mount('tools', other, name='other')\n"
    path = examiner.changed("tool_words", ("side_effect_free = True", ""), (mount, mount + other + second))
    report = await examiner.examine(path, given={"other": {"text": "one"}})
    assert outcome_of(report, rules.takes_a_fitting_input) == (
        "not checked",
        "count_words: The tool may have side effects.",
    )
    assert outcome_of(report, rules.output_is_plain) == ("passed", "")


async def test_a_tool_works_in_an_empty_folder_of_its_own(examiner):
    told = '{"message": __import__("os").listdir() + [__import__("os").getcwd(), object()]}'
    path = examiner.changed("tool_words", ('{"message": "text is required, and must be a text."}', told))
    [finding] = (await examiner.examine(path)).of("failed")
    assert "cannot be written as JSON" in finding.problem


async def test_of_several_tools_the_one_that_is_wrong_is_named(examiner):
    mount = "    await coordinator.mount('tools', tool, name=tool.name)\n"
    other = "    other = CountWords()\n    other.name = 'other'\n    other.execute = None\n"
    second = "    await coordinator.mount('tools', other, name='other')\n"
    path = examiner.changed(
        "tool_words", ('    await coordinator.mount("tools", tool, name=tool.name)\n', mount + other + second)
    )
    problems = [finding.problem for finding in (await examiner.examine(path)).of("failed")]
    assert problems == ["other: Its execute is no method but None."]


async def test_a_tool_may_give_its_schema_as_a_property(examiner):
    path = examiner.changed("tool_words", ("    def get_schema", "    @property\n    def input_schema"))
    report = await examiner.examine(path)
    assert report.passed
    assert not report.of("warning")
