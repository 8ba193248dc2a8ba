"""The rules of approvals: which tool calls are allowed, denied, or need one or two people."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orchestrator_interactive.config import Options
from orchestrator_interactive.loop.tool_call import is_side_effect_free

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator_interactive.kernel.contracts.protocols import Tool

Level = Literal["allow", "ask", "ask-two", "deny"]
Scope = Literal["conversation", "instance"]

_APPROVERS = ("owner", "participants", "anyone")
_USER_ID = re.compile(r"[UW][A-Z0-9]+")
_ONE_APPROVER = "two people must answer, and 'approvers' names one"


class ApprovalRule(Options):
    """What applies to the calls that it matches.

    Args:
        tool, instance, channel, person: patterns with `*` and `?`; `person` is the user for whom the run works.
        arguments: by the name of an argument, a regular expression that must be found in its text.
        level: what applies.
        approvers: users that may answer, in place of the general ones.
        name: for people and logs; default: its position and its tool.
    """

    tool: str = "*"
    arguments: dict[str, str] = Field(default_factory=dict)
    instance: str = "*"
    channel: str = "*"
    person: str = "*"
    level: Level
    approvers: tuple[str, ...] | None = None
    name: str = ""

    @field_validator("arguments")
    @classmethod
    def _are_patterns(cls, given: dict[str, str]) -> dict[str, str]:
        for name, pattern in given.items():
            try:
                re.compile(pattern)
            except re.error as e:
                raise ValueError(f"the pattern of {name!r} is no regular expression ({e})") from e
        return given

    @field_validator("approvers", mode="before")
    @classmethod
    def _known_approvers(cls, given: Any) -> Any:
        return _approvers(given)

    @model_validator(mode="after")
    def _two_can_answer(self) -> Self:
        if self.level == "ask-two" and self.approvers is not None and is_one_person(self.approvers):
            raise ValueError(_ONE_APPROVER)
        return self

    @property
    def is_specific(self) -> bool:
        """Whether it names approvers, or is about some arguments, places or people."""
        anywhere = self.instance == self.channel == self.person == "*"
        return self.approvers is not None or bool(self.arguments) or not anywhere

    def matches(self, tool: str, arguments: Mapping[str, Any], where: CallFacts) -> bool:
        """Return whether the rule applies to a call."""
        patterns = ((self.instance, where.instance), (self.channel, where.channel), (self.person, where.person))
        return (
            fnmatchcase(tool, self.tool)
            and all(fnmatchcase(value, pattern) for pattern, value in patterns)
            and all(re.search(pattern, text_of(arguments.get(name))) for name, pattern in self.arguments.items())
        )


class ApprovalOptions(Options):
    """Options of `hooks-approval`.

    Args:
        rules: the first one that matches a call applies.
        destructive: what applies to tools marked `destructive`, if no rule matches. Tools marked `side_effect_free` are
            allowed, and so are those that say that they are not destructive.
        unmarked: what applies to tools that say nothing of this.
        approvers: users that may answer: `owner` of the run, `participants` of the thread, `anyone`, or ids of users.
            In place of the owner alone, participants answer what two people must allow.
        deadline_s: time for an answer, in seconds.
        on_deadline: what applies after it.
        always: for which scopes people may allow a tool for good; none: they may not.
    """

    rules: tuple[ApprovalRule, ...] = ()
    destructive: Level = "ask"
    unmarked: Level = "ask"
    approvers: tuple[str, ...] = ("owner",)
    deadline_s: float = Field(default=3600.0, gt=0, le=30 * 24 * 3600)
    on_deadline: Literal["allow", "deny"] = "deny"
    always: tuple[Scope, ...] = ("conversation", "instance")

    @field_validator("approvers", mode="before")
    @classmethod
    def _known_approvers(cls, given: Any) -> Any:
        return _approvers(given)

    @model_validator(mode="after")
    def _two_can_answer(self) -> Self:
        levels = {self.destructive, self.unmarked, *(rule.level for rule in self.rules if rule.approvers is None)}
        if "ask-two" in levels and is_one_person(_enough(self.approvers, "ask-two")):
            raise ValueError(_ONE_APPROVER)
        return self


def _approvers(given: Any) -> Any:
    found = (given,) if isinstance(given, str) else given
    if isinstance(found, list | tuple):
        for each in found:
            if each not in _APPROVERS and not (isinstance(each, str) and _USER_ID.fullmatch(each)):
                raise ValueError(f"{each!r} is neither a user id (U…) nor one of {', '.join(_APPROVERS)}")
        if not found:
            raise ValueError("name at least one approver")
    return found


@dataclass(frozen=True, slots=True)
class CallFacts:
    """Where and for whom a session works; blank: unknown."""

    instance: str = ""
    channel: str = ""
    person: str = ""
    conversation: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The level of a call, its rule, and the users that may answer.

    `is_specific`: the rule names approvers, or is about some arguments, places or people: no rule that a person makes
    by “Always allow” takes its place.
    """

    level: Level
    rule: str
    approvers: tuple[str, ...] = ("owner",)
    is_specific: bool = False

    def unless_allowed(self, always: Iterable[Mapping[str, Any]], tool: str, arguments: Mapping[str, Any]) -> Decision:
        """Return the decision after the rules that people made: each has a `tool`, an `id`, and maybe `arguments`."""
        if self.level != "ask" or self.is_specific:
            return self
        for rule in always:
            given = rule.get("arguments")
            if rule.get("tool") == tool and (given is None or given == arguments):
                return replace(self, level="allow", rule=f"always: {rule.get('id')}")
        return self


def decide(
    options: ApprovalOptions, name: str, arguments: Mapping[str, Any], tool: Tool | None, where: CallFacts
) -> Decision:
    """Return what applies to a call of a tool; `tool` is `None` if it is not mounted.

    A tool that takes an argument under several names, or in several forms, returns the one for rules by the optional
    method `canonical(input)`. One with own rules returns their decision by the optional method `approval(input)`: an
    object with `level`, `reason` and `is_final` (no “Always allow” applies), or `None`. The rules of the options
    come first.
    """
    if (canonical := getattr(tool, "canonical", None)) is not None:
        arguments = canonical(arguments)
    for number, rule in enumerate(options.rules, 1):
        if rule.matches(name, arguments, where):
            approvers = rule.approvers or _enough(options.approvers, rule.level)
            return Decision(rule.level, rule.name or f"rule {number}, for {rule.tool}", approvers, rule.is_specific)
    if (own := getattr(tool, "approval", None)) is not None and (verdict := own(arguments)) is not None:
        level: Level = verdict.level
        approvers = _enough(options.approvers, level)
        return Decision(level, f"{name}: {verdict.reason}", approvers, is_specific=verdict.is_final)
    is_destructive = getattr(tool, "destructive", None)
    if is_side_effect_free(tool) or is_destructive is False:
        why = "it has no side effects" if is_side_effect_free(tool) else "it is not destructive"
        return Decision("allow", f"default: {why}")
    level = options.destructive if is_destructive else options.unmarked
    why = "it is destructive" if is_destructive else "it does not say whether it is destructive"
    return Decision(level, f"default: {why}", _enough(options.approvers, level))


def is_one_person(approvers: tuple[str, ...], owner: str = "owner") -> bool:
    """Return whether approvers name only one person; `owner`: the user who began the run."""
    people = {owner if each == "owner" else each for each in approvers}
    return len(people) == 1 and people.isdisjoint({"participants", "anyone"})


def _enough(approvers: tuple[str, ...], level: Level) -> tuple[str, ...]:
    """Return the approvers; two people are more than the owner. Those that are named stay the only ones."""
    return ("participants",) if level == "ask-two" and set(approvers) == {"owner"} else approvers


def text_of(value: Any) -> str:
    """Return an argument as text, for patterns; blank: it is missing."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
