"""Check that mounted instances have the members of their protocol."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import ValidationRule, kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.validation.report import ModuleType
    from orchestrator_interactive.validation.runner import Problems
    from orchestrator_interactive.validation.sandbox import Mounted


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a protocol; for a method with the arguments that the kernel passes."""

    name: str
    form: Literal["text", "method", "async method"] = "async method"
    positional: tuple[str, ...] = ()
    named: tuple[str, ...] = field(default=())


MEMBERS: Mapping[ModuleType, tuple[Member, ...]] = {
    "orchestrator": (
        Member("execute", named=("prompt", "context", "providers", "tools", "hooks", "coordinator")),
    ),
    "context": (
        Member("add_message", positional=("message",)),
        Member("get_messages_for_request", named=("token_budget", "provider")),
        Member("get_messages"),
        Member("set_messages", positional=("messages",)),
        Member("clear"),
    ),
    "provider": (
        Member("name", "text"),
        Member("get_info", "method"),
        Member("list_models"),
        Member("complete", positional=("request",), named=("stream",)),
        Member("parse_tool_calls", "method", positional=("response",)),
    ),
    "tool": (
        Member("name", "text"),
        Member("description", "text"),
        Member("execute", positional=("input",)),
    ),
}  # fmt: skip

_PROTOCOLS: Mapping[ModuleType, str] = {"context": "ContextManager"}

_FIX: Mapping[ModuleType, str] = {
    "orchestrator": "Write `async def execute(self, prompt, context, providers, tools, hooks, **kwargs) -> str`.",
    "context": "Write the five async methods of the protocol, with its parameters.",
    "provider": "Write the five members of the protocol; complete() takes (request, **kwargs).",
    "tool": "Give it a `name` and a `description` that are text, and `async def execute(self, input)`.",
}


def implements(module_type: ModuleType) -> ValidationRule[tuple[Mounted, ...]]:
    """Return the rule that all instances of this type have the members of its protocol."""
    check = Check(
        rule=f"it implements the {_PROTOCOLS.get(module_type, module_type.title())} protocol",
        section="Protocol Definition",
        fix=_FIX[module_type],
        part="structure",
    )

    def find_problems(mounted: tuple[Mounted, ...]) -> Problems:
        return [
            f"{one.name}: {problem}" if len(mounted) > 1 else problem
            for one in mounted
            for member in MEMBERS[module_type]
            for problem in _problems(one.instance, member)
        ]

    return ValidationRule(check, find_problems)


def _problems(instance: Any, member: Member) -> Iterator[str]:
    try:
        value = getattr(instance, member.name)
    except AttributeError:
        yield f"There is no {_spelled(member)}."
        return
    if member.form == "text":
        if not isinstance(value, str) or not value.strip():
            yield f"Its {member.name} is {repr(value) if isinstance(value, str) else kind(value)}, not a text."
    elif not callable(value):
        yield f"Its {member.name} is no method but {kind(value)}."
    else:
        yield from _problems_of_method(value, member)


def _problems_of_method(method: Any, member: Member) -> Iterator[str]:
    is_async = inspect.iscoroutinefunction(method)
    if inspect.isroutine(method) and is_async != (member.form == "async method"):
        yield f"Its {member.name}() is {'async' if is_async else 'a plain function'}."
    try:
        inspect.signature(method).bind(*member.positional, **dict.fromkeys(member.named))
    except TypeError as e:
        wanted = ", ".join((*member.positional, *(f"{name}=…" for name in member.named)))
        yield f"Its {member.name}() cannot be called with ({wanted}): {e}."


def _spelled(member: Member) -> str:
    return member.name if member.form == "text" else f"{member.name}()"
