"""Rules for tools: they describe their input, and return a result for any input."""

from __future__ import annotations

import copy
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import Hung, NotChecked, Returned, kind, raising, rule, summarize
from orchestrator_interactive.validation.sandbox import called
from orchestrator_interactive.validation.tool.inputs import ToolTrial, Tried, inputs
from orchestrator_interactive.validation.tool.schemas import SCHEMA_RULES, required_by, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator_interactive.validation.runner import Problems, ValidationRule, Validator
    from orchestrator_interactive.validation.sandbox import SandboxSession

_SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


async def check_tool(validator: Validator, sandboxes: SandboxSession, given: Mapping[str, Any] | None) -> None:
    """Call every tool with an empty input, wrong types and, if allowed, valid inputs; then check the rules.

    `given` is a valid input; for several tools, a dict by tool name.
    """
    async with sandboxes.open() as sandbox:
        tools = {mounted.name: mounted.instance for mounted in sandbox.all("tool")}
        schemas = {name: schema_of(tool) for name, tool in tools.items()}
        executions, lacking = [], {}
        for name, tool in tools.items():
            wanted = inputs(tool, schemas[name], _given_to(name, tools, given), validator.location)
            if wanted.lacking:
                lacking[name] = wanted.lacking
            for each in wanted.all:
                call = called(partial(tool.execute, copy.deepcopy(dict(each.given))))
                ended = await validator.perform(f"{name}: execute() with {each.words}", call)
                executions.append(ToolTrial(name, each, ended))
        tried = Tried(validator.location, tools, schemas, tuple(executions), lacking)
        await validator.check_all((takes_a_fitting_input, *RULES), tried)


def _given_to(name: str, tools: Mapping[str, Any], given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if given is None or len(tools) == 1:
        return given
    of_this = given.get(name)
    return of_this if isinstance(of_this, dict) else None


@rule(
    Check(
        rule="a fitting input is executed",
        section="execute() Method",
        fix="",
        required=False,
    )
)
def takes_a_fitting_input(tried: Tried) -> Problems:
    """Never fails: other rules check the results of valid inputs, and a tool may have reasons to refuse one."""
    reasons = [f"{name}: {tried.lacking[name]}" if len(tried.tools) > 1 else why for name, why in tried.lacking.items()]
    for name in tried.tools:
        executions = [execution for execution in tried.executions if execution.tool == name and execution.input.fits]
        refusals = [f"{each} fails: {each.refusal}" for each in executions if each.refusal is not None]
        if executions and len(refusals) == len(executions):
            reasons.append(refusals[-1])
    if reasons:
        by_name = "by name, {name: {…}}" if len(tried.tools) > 1 else "as YAML"
        raise NotChecked(
            summarize(reasons), f"Give one with --input, {by_name}; side_effect_free = True allows to try."
        )
    return []


@rule(
    Check(
        rule="the name is short and in snake_case",
        section="Name and Description",
        fix="Use lower-case words joined by underscores, such as `read_file`.",
        required=False,
    )
)
def name_in_snake_case(tried: Tried) -> Problems:
    return [
        f"A tool is called '{tool.name}'."
        for tool in tried.tools.values()
        if not _SNAKE_CASE.fullmatch(tool.name) or len(tool.name) > 64  # limit of the provider APIs
    ]


@rule(
    Check(
        rule="execute() does not raise, with any input that was tried",
        section="execute() Method",
        fix="Check the input first, and return ToolResult(success=False, error={'message': …}) for errors.",
    )
)
def does_not_raise(tried: Tried) -> Problems:
    return raising(tried.executions, tried.location)


@rule(
    Check(
        rule="execute() ends in time, with any input that was tried",
        section="execute() Method",
        fix="Limit and await long operations; a tool that never ends blocks the agent.",
    )
)
def ends_in_time(tried: Tried) -> Problems:
    return [
        f"{execution} does not end within {execution.ended.limit_s:g} seconds."
        for execution in tried.executions
        if isinstance(execution.ended, Hung)
    ]


@rule(
    Check(
        rule="execute() returns a ToolResult, with any input that was tried",
        section="execute() Method",
        fix="Return ToolResult(success=True, output=…), or success=False with an error.",
    )
)
def returns_a_result(tried: Tried) -> Problems:
    return [
        f"{execution} returns {kind(execution.ended.value)}."
        for execution in tried.executions
        if isinstance(execution.ended, Returned) and execution.result is None
    ]


@rule(
    Check(
        rule="an input without required properties fails",
        section="execute() Method",
        fix="Return ToolResult(success=False, error={'message': 'path is required'}) where something is missing.",
    )
)
def missing_input_fails(tried: Tried) -> Problems:
    asked = [
        execution
        for execution in tried.executions
        if not execution.given and required_by(tried.schemas[execution.tool]) and execution.result is not None
    ]
    if not asked:
        raise NotChecked("No tool requires anything by its schema.", "List mandatory properties in 'required'.")
    return [
        f"{execution} succeeds, though its schema requires {', '.join(required_by(tried.schemas[execution.tool]))}."
        for execution in asked
        if execution.result is not None and execution.result.success
    ]


@rule(
    Check(
        rule="an observed failure names the problem",
        section="execute() Method",
        fix="Put a sentence for the model into error['message'].",
        required=False,
    )
)
def failures_have_message(tried: Tried) -> Problems:
    return [
        f"{execution} fails, and neither its error['message'] nor its output says why."
        for execution in tried.executions
        if (result := execution.result) is not None
        and not result.success
        and not (result.error or {}).get("message")
        and not result.output
    ]


@rule(
    Check(
        rule="an observed output can be sent to a model",
        section="ToolResult (Output)",
        fix="Put into `output` a text, or lists and dictionaries of texts and numbers.",
    )
)
def output_is_plain(tried: Tried) -> Problems:
    results = [(execution, execution.result) for execution in tried.executions if execution.result is not None]
    problems = [
        f"{execution} gives an output that cannot be written as JSON: {problem}."
        for execution, result in results
        if (problem := _not_json(result.output))
    ]
    if not problems and not any(result.success for _, result in results):
        raise NotChecked("No call succeeded.", "Pass a valid input with --input.")
    return problems


def _not_json(output: Any) -> str:
    try:
        json.dumps(output)
    except (TypeError, ValueError) as e:
        return str(e)
    return ""


RULES: tuple[ValidationRule[Tried], ...] = (
    name_in_snake_case,
    *SCHEMA_RULES,
    does_not_raise,
    ends_in_time,
    returns_a_result,
    missing_input_fails,
    failures_have_message,
    output_is_plain,
)
