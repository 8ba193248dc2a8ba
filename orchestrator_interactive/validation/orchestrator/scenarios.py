"""Scenarios for the runs of an orchestrator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import HookResult, ToolResult

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT = "What is in the files?"
ANSWER = "There are apples."
SIGNATURE = "c2lnbmF0dXJl"
INJECTED = "Mind the pears, says the hook."
REPLACED_INPUT = {"path": "replaced.txt"}
REPLACED_RESULT = "The replaced result."
PROVIDER_FAILURE = "The model is overloaded."
APPROVAL_PROMPT = "May the tool run?"


@dataclass(frozen=True, slots=True)
class ScenarioCall:
    """A tool call. The tools are `echo`, `broken`, which raises, and `held`, which waits until it is cancelled."""

    tool: str
    path: str = "a.txt"


def result_for(path: str) -> str:
    """Return the result of `echo`."""
    return f"In {path} are apples."


@dataclass(frozen=True, slots=True)
class Say:
    text: str = ANSWER


@dataclass(frozen=True, slots=True)
class Ask:
    """A response with signed thinking and these calls."""

    calls: tuple[ScenarioCall, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """A `ProviderUnavailableError` instead of a response."""


@dataclass(frozen=True, slots=True)
class Hold:
    """No response until the call is cancelled."""


Approval = Literal["Allow", "Deny"]
Answer = Say | Ask | Fail | Hold


@dataclass(frozen=True, slots=True)
class HookScript:
    """Result of a hook for the first emission of an event. `changes` are merged into the event's data by `modify`."""

    event: str
    result: HookResult
    changes: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run.

    Args:
        name: description of the run.
        answers: responses of the model in order; then `ANSWER`, or with `endless` the last one repeatedly.
        hook_script: result of a hook during the run.
        approval: answer of the approval system.
        providers: names under which the model is mounted.
        cancel_at: operation during which the task is cancelled.
    """

    name: str
    answers: tuple[Answer, ...] = ()
    hook_script: HookScript | None = None
    approval: Approval | None = None
    providers: tuple[str, ...] = ("mock",)
    cancel_at: Literal["model", "tool"] | None = None
    endless: bool = False


def _tools(*tools: str) -> Ask:
    return Ask(tuple(ScenarioCall(tool, f"{number}.txt") for number, tool in enumerate(tools)))


def _hooked(
    name: str,
    event: str,
    result: HookResult,
    changes: Mapping[str, Any] | None = None,
    approval: Approval | None = None,
) -> Scenario:
    """Return a scenario with two parallel calls, then a third; the first call triggers the hook."""
    answers = (_tools("echo", "echo"), Ask((ScenarioCall("echo", "later.txt"),)))
    return Scenario(name, answers, HookScript(event, result, changes), approval)


_DENIED = HookResult(action="deny", reason="The hook says no.")
_INJECT = HookResult(action="inject_context", context_injection=INJECTED)
_REMARK = _INJECT.model_copy(update={"ephemeral": True, "context_injection_role": "user"})
_MODIFY = HookResult(action="modify")
_ASK_USER = HookResult(action="ask_user", approval_prompt=APPROVAL_PROMPT)

PLAIN = Scenario("a plain answer", (Say(),))
TOOLS = Scenario("two rounds of tools", (_tools("echo", "echo"), _tools("echo"), Say()))
UNKNOWN_TOOL = Scenario("an unknown tool", (_tools("nowhere", "echo"), Say()))
BROKEN_TOOL = Scenario("a tool that raises", (_tools("broken", "echo"), Say()))
PROVIDER_ERROR = Scenario("an error of the provider", (Fail(),))
LATER_PROVIDER_ERROR = Scenario("an error of the provider after a tool", (_tools("echo"), Fail()))
CANCELLED_MODEL = Scenario("a cancelled model call", (_tools("echo"), Hold()), cancel_at="model")
CANCELLED_TOOL = Scenario("a cancelled tool call", (_tools("held", "echo"),), cancel_at="tool")

DENY_PROMPT = Scenario("a denied prompt", hook_script=HookScript(events.PROMPT_SUBMIT, _DENIED))
DENY_REQUEST = Scenario("a denied request", hook_script=HookScript(events.PROVIDER_REQUEST, _DENIED))
INJECT_REQUEST = Scenario(
    "an injection at provider:request", (_tools("echo"),), HookScript(events.PROVIDER_REQUEST, _INJECT)
)

DENY_PRE = _hooked("a denied tool", events.TOOL_PRE, _DENIED)
MODIFY_PRE = _hooked("a modified input", events.TOOL_PRE, _MODIFY, changes={"tool_input": REPLACED_INPUT})
INJECT_PRE = _hooked("an injection at tool:pre", events.TOOL_PRE, _INJECT)
ALLOWED_PRE = _hooked("a tool that the user allows", events.TOOL_PRE, _ASK_USER, approval="Allow")
REFUSED_PRE = _hooked("a tool that the user refuses", events.TOOL_PRE, _ASK_USER, approval="Deny")

DENY_POST = _hooked("a denied result", events.TOOL_POST, _DENIED)
MODIFY_POST = _hooked(
    "a modified result", events.TOOL_POST, _MODIFY, changes={"tool_result": ToolResult(output=REPLACED_RESULT)}
)
INJECT_POST = _hooked("an injection at tool:post", events.TOOL_POST, _INJECT)
REMARK_POST = _hooked("an ephemeral injection at tool:post", events.TOOL_POST, _REMARK)
REFUSED_POST = _hooked("a result that the user refuses", events.TOOL_POST, _ASK_USER, approval="Deny")

SEVERAL_PROVIDERS = Scenario("two providers", (_tools("echo"), Say()), providers=("first", "second"))
ENDLESS = Scenario("endless tool calls", (_tools("echo"),), endless=True)

SCENARIOS = (
    PLAIN,
    TOOLS,
    UNKNOWN_TOOL,
    BROKEN_TOOL,
    PROVIDER_ERROR,
    LATER_PROVIDER_ERROR,
    CANCELLED_MODEL,
    CANCELLED_TOOL,
    DENY_PROMPT,
    DENY_REQUEST,
    INJECT_REQUEST,
    DENY_PRE,
    MODIFY_PRE,
    INJECT_PRE,
    ALLOWED_PRE,
    REFUSED_PRE,
    DENY_POST,
    MODIFY_POST,
    INJECT_POST,
    REMARK_POST,
    REFUSED_POST,
    SEVERAL_PROVIDERS,
    ENDLESS,
)
