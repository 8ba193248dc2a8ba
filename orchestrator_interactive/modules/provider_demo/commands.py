"""The prompts that begin with `demo:`: sample answers, answers that end in another way, and calls of any tool."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import TextBlock

if TYPE_CHECKING:
    from collections.abc import Collection

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock
    from orchestrator_interactive.modules.provider_demo.conversation import DemoTask

    Call = tuple[str, dict[str, Any]]

_CALL = re.compile(r"demo: call `?([\w.-]{1,128})`?\s*(.*)", re.DOTALL | re.IGNORECASE)
_SHOWN_CHARS = 3000
_LONG_ANSWER = (
    "This answer is longer than a model may write at once. The demo stops it after fifteen words and reports that it "
    "was cut; then it is asked to continue, until all of it is there: you should read it in one piece."
)
_MAX_WORDS = 15
_SAMPLES = {
    "demo: table": (
        "What a model call costs, by kind of token:\n\n| tokens | price per million | share of a long run |\n"
        "|---|---:|---:|\n| input | $3.00 | 12 % |\n| cached input | $0.30 | 71 % |\n| output | $15.00 | 17 % |\n\n"
        "Most of a long run is **cached input**, because requests grow only at their end."
    ),
    "demo: code": (
        'This tool adds two numbers; `inline code` looks like this:\n\n```python\nclass AddTool:\n    name = "add"\n'
        '    description = "Add two numbers."\n\n    async def execute(self, input: dict) -> dict:\n'
        '        return {"sum": input["a"] + input["b"]}\n```\n\nMount it, and the model can call it.'
    ),
    "demo: long": "\n\n".join(
        f"**Paragraph {number}.** A long answer is split where a reader would pause: between paragraphs, items and "
        f"sentences, never inside a code block. This is paragraph {number} of 40, so that it takes several messages."
        for number in range(1, 41)
    ),
}

# Slack's composer makes quotation marks curly.
_STRAIGHT = str.maketrans("“”„‘’", '"""\'\'')  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One answer of the model. Its first paragraph takes `wait_s` seconds. `refusal` explains a refused one."""

    blocks: list[ContentBlock]
    wait_s: float = 0.0
    finish_reason: str = "end_turn"
    refusal: str | None = None


def commanded_step(task: DemoTask, tool_names: Collection[str]) -> DemoStep | Call | None:
    """Return the answer or the call that a prompt `demo: …` asks for; `None` for other prompts."""
    if called := _CALL.fullmatch(task.prompt):
        return _call_step(task, called[1], called[2], tool_names)
    prompt = "" if task.injected else task.prompt
    match prompt:
        case "demo: refuse":
            return DemoStep([], finish_reason="refusal", refusal="The demo refuses because you asked for it.")
        case "demo: cut":
            words = _LONG_ANSWER.split()[task.said_words :]
            is_cut = len(words) > _MAX_WORDS
            text = " ".join(words[:_MAX_WORDS]) + (" " if is_cut else "")
            return DemoStep([TextBlock(text=text)], finish_reason="max_tokens" if is_cut else "end_turn")
    return said(_SAMPLES[prompt]) if prompt in _SAMPLES else None


def _call_step(task: DemoTask, name: str, given: str, tool_names: Collection[str]) -> DemoStep | Call:
    """Call the tool, or report its result, or why it cannot be called."""
    try:
        arguments = json.loads(given.translate(_STRAIGHT).strip("` \n") or "{}")
    except ValueError as e:
        return said(f"The arguments of `{name}` are not JSON: {e}.")
    if not isinstance(arguments, dict):
        return said(f'The arguments of `{name}` must be a JSON object, such as `{{"path": "notes.md"}}`.')
    if (made := task.call(name, arguments)) is None:
        if name in tool_names:
            return name, arguments
        named = ", ".join(f"`{each}`" for each in sorted(tool_names)) or "none"
        return said(f"There is no tool `{name}`. The tools of this agent are: {named}.")
    if made.output is None:
        return said(f"I am still waiting for `{name}`; then I continue.")
    output = made.output.replace("```", "'''")[:_SHOWN_CHARS]
    return said(f"`{name}` {'failed' if made.failed else 'returned'}:\n```\n{output}\n```")


def said(text: str, wait_s: float = 0.0) -> DemoStep:
    """Return an answer without calls."""
    return DemoStep([TextBlock(text=text)], wait_s)
