"""Show a tool call to people who are to approve it."""

from __future__ import annotations

import inspect
import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.error_boundary import ErrorBoundary

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.protocols import Tool

log = structlog.get_logger(__name__)

_SHORT_CHARS = 80
_TICKS = re.compile(r"`+")
# Categories of characters that a person does not see, or that change the order in which a text is shown.
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Blank characters of other categories: fillers, and selectors of variants.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


async def preview(tool: Tool | None, arguments: dict[str, Any]) -> str:
    """Return the arguments of a call as Markdown. A tool's own `preview(arguments)` comes first, such as a diff.

    Characters that people would not see are shown by their numbers.
    """
    shown, refusal = await _own(tool, arguments)
    if not shown.strip():
        problem = [f"The tool refuses these arguments, so that no one is asked: {refusal}"] if refusal else []
        listed = [_argument(name, value) for name, value in arguments.items()] or ["(It has no arguments.)"]
        shown = "\n".join((*problem, *listed))
    shown = shown.replace("\r\n", "\n")
    return shown.translate({ord(each): _visible(each) for each in set(shown)})


async def refusal(tool: Tool | None, arguments: dict[str, Any]) -> str:
    """Return why a tool refuses arguments: the ValueError of its `preview(arguments)`; blank: there is none."""
    return (await _own(tool, arguments))[1]


def _visible(character: str) -> str:
    is_unseen = unicodedata.category(character) in _UNSEEN or _BLANK.match(character)
    return f"\\u{{{ord(character):x}}}" if is_unseen and character not in "\n\t" else character


async def _own(tool: Tool | None, arguments: dict[str, Any]) -> tuple[str, str]:
    """Return the tool's own text about a call, and why the tool refuses it; each may be blank."""
    own = getattr(tool, "preview", None)
    if callable(own):
        with ErrorBoundary(log, "tool.preview_failed", tool=getattr(tool, "name", "")):
            try:
                shown: Any = own(arguments)
                shown = await shown if inspect.isawaitable(shown) else shown
            except ValueError as e:  # a mistake of the model
                return "", str(e)
            return (shown, "") if isinstance(shown, str) else ("", "")
    return "", ""


def fenced(text: str, kind: str = "") -> str:
    """Return a code block that the text cannot end."""
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def risk_of(tool: Tool | None) -> str:
    """Return why people are asked, by the tool's own declaration."""
    if getattr(tool, "destructive", None):
        return "It changes or deletes data"
    return "It may change something"


def _argument(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    label = f"*{name}*:" if name.isidentifier() else f"{json.dumps(name)}:"
    if "\n" in text or len(text) > _SHORT_CHARS or "`" in text:
        return f"{label}\n{fenced(text)}"
    return f"{label} `{text}`" if text.strip() else f"{label} (blank)"
