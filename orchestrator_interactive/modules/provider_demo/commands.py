"""The prompts that begin with `demo:`: sample answers, answers that end in another way, and calls of any tool."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.json_limits import parse_json
from orchestrator_interactive.kernel.contracts.messages import TextBlock

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ContentBlock
    from orchestrator_interactive.modules.provider_demo.conversation import DemoTask

    Call = tuple[str, dict[str, Any]]

_COMMAND = re.compile(r"[\s!]*demo:\s*(.*)", re.DOTALL | re.IGNORECASE)
_CALL = re.compile(r"call\s+`?([\w.-]{1,128})`?\s*(.*)", re.DOTALL | re.IGNORECASE)
_SHOWN_CHARS = 3000
_LONG_ANSWER = (
    "This answer is longer than a model may write at once. The demo stops it after fifteen words and reports that it "
    "was cut; then it is asked to continue, until all of it is there: you should read it in one piece."
)
_MAX_WORDS = 15
_SAMPLES = {
    "table": (
        "What a model call costs, by kind of token:\n\n| tokens | price per million | share of a long run |\n"
        "|---|---:|---:|\n| input | $3.00 | 12 % |\n| cached input | $0.30 | 71 % |\n| output | $15.00 | 17 % |\n\n"
        "Most of a long run is **cached input**, because requests grow only at their end."
    ),
    "code": (
        'This tool adds two numbers; `inline code` looks like this:\n\n```python\nclass AddTool:\n    name = "add"\n'
        '    description = "Add two numbers."\n    async def execute(self, input: dict) -> dict:\n'
        '        return {"sum": input["a"] + input["b"]}\n```\n\nMount it, and the model can call it.'
    ),
    "long": "\n\n".join(
        f"**Paragraph {number}.** A long answer is split where a reader would pause: between paragraphs, items and "
        f"sentences, never inside a code block. This is paragraph {number} of 40, so that it takes several messages."
        for number in range(1, 41)
    ),
    "cut": _LONG_ANSWER,
}
# Commands that end the first model call of their task in another way; after it they are over.
_ENDINGS = ("fail", "fail auth", "rate limit", "stall", "refuse")

# Slack's composer makes quotation marks curly.
_STRAIGHT = str.maketrans("“”„‘’", '"""\'\'')  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One answer of the model. Its first paragraph takes `wait_s` seconds. `refusal` explains a refused one."""

    blocks: list[ContentBlock]
    wait_s: float = 0.0
    finish_reason: str = "end_turn"
    refusal: str | None = None


def command_of(text: str) -> str | None:
    """Return the command of a message `demo: …`, in lower case except for calls; `None` for other messages."""
    if (found := _COMMAND.fullmatch(text)) is None:
        return None
    command = found[1].strip()
    return command if _CALL.fullmatch(command) else command.lower()


def ending_of(command: str, said_before: str) -> DemoStep | None:
    """Return the refused or truncated answer that a command asks for; `None` for other commands."""
    match command:
        case "refuse":
            return DemoStep([], finish_reason="refusal", refusal="The demo refuses because you asked for it.")
        case "cut" if words := _LONG_ANSWER.split()[len(said_before.split()) :]:
            is_cut = len(words) > _MAX_WORDS
            text = " ".join(words[:_MAX_WORDS]) + (" " if is_cut else "")
            return DemoStep([TextBlock(text=text)], finish_reason="max_tokens" if is_cut else "end_turn")
    return None


def call_of(command: str) -> Call | str | None:
    """Return the call that a command asks for, or why its arguments cannot be used; `None` for other commands."""
    if (asked := _CALL.fullmatch(command)) is None:
        return None
    given = asked[2].strip("` \n") or "{}"
    try:
        try:
            arguments = parse_json(given)
        except ValueError:
            arguments = parse_json(given.translate(_STRAIGHT))
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as e:
        return f"The arguments of `{asked[1]}` are not JSON: {e}."
    if not isinstance(arguments, dict):
        return f'The arguments of `{asked[1]}` must be a JSON object, such as `{{"path": "notes.md"}}`.'
    return asked[1], arguments


def command_text(command: str, task: DemoTask) -> str:
    """Return the text that a command asks for. A sample that was interrupted goes on after its last whole paragraph."""
    if command in _SAMPLES:
        paragraphs = _SAMPLES[command].split("\n\n")
        return "\n\n".join([each for each in paragraphs if each not in task.said] or paragraphs)
    match call_of(command):
        case str(problem):
            return problem
        case (name, arguments):
            if (made := task.call(name, arguments)) is None:
                named = ", ".join(f"`{each}`" for each in sorted(task.tool_names)) or "none"
                return f"There is no tool `{name}`. The tools of this agent are: {named}."
            output = (made.output or "").replace("```", "'''")[:_SHOWN_CHARS]
            return f"`{name}` {'failed' if made.failed else 'returned'}:\n```\n{output}\n```"
    if command in _ENDINGS:
        return f"`demo: {command}` is over, because you wrote on."
    known = ", ".join(f"`demo: {each}`" for each in (*_SAMPLES, *_ENDINGS, "call TOOL {…}"))
    return f"There is no `demo: {command[:_SHOWN_CHARS]}`. There are: {known}."


def said(text: str, wait_s: float = 0.0) -> DemoStep:
    """Return an answer without calls."""
    return DemoStep([TextBlock(text=text)], wait_s)
