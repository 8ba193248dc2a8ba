"""`hooks-approval`: which calls are allowed, denied, or need people, and by which rule."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents.after_run import results
from agents.milestones import soon
from agents.provider import call, say, use
from agents.session import Agent, make_agent
from agents.tools import echo, having

from orchestrator_interactive.config import validate
from orchestrator_interactive.modules.hooks_approval import ApprovalOptions, CallFacts, decide, mount, preview
from orchestrator_interactive.modules.tool_bash import mount as mount_bash
from orchestrator_interactive.modules.tool_filesystem import mount as mount_filesystem
from orchestrator_interactive.modules.tool_filesystem.diff import diff

RULES = {
    "rules": [
        {"tool": "rm", "arguments": {"path": "^/etc", "force": "true"}, "level": "deny"},
        {"tool": "rm", "channel": "C1", "level": "ask-two"},
        {"tool": "rm", "instance": "be*", "person": "U7", "level": "allow"},
    ]
}


@pytest.mark.parametrize(
    ("tool", "arguments", "facts", "expected"),
    [
        ({"side_effect_free": True}, {}, {}, ("allow", "default: it has no side effects", ("owner",))),
        ({"destructive": False}, {}, {}, ("allow", "default: it is not destructive", ("owner",))),
        ({"destructive": True}, {}, {}, ("ask", "default: it is destructive", ("owner",))),
        ({}, {}, {}, ("ask", "default: it does not say whether it is destructive", ("owner",))),
        ({"side_effect_free": True}, {"path": "/etc/x", "force": True}, {}, ("deny", "rule 1, for rm", ("owner",))),
        (
            {"destructive": True},
            {"path": "/etc/x"},
            {"channel": "C1"},
            ("ask-two", "rule 2, for rm", ("participants",)),
        ),
        ({"destructive": True}, {}, {"instance": "beta", "person": "U7"}, ("allow", "rule 3, for rm", ("owner",))),
        (
            {"destructive": True},
            {},
            {"instance": "beta", "person": "U8"},
            ("ask", "default: it is destructive", ("owner",)),
        ),
    ],
)
def test_the_first_rule_applies_and_then_the_declaration_of_the_tool(
    tool: dict[str, Any], arguments: dict[str, Any], facts: dict[str, str], expected: tuple[Any, ...]
) -> None:
    decision = decide(ApprovalOptions(**RULES), "rm", arguments, SimpleNamespace(**tool), CallFacts(**facts))
    assert (decision.level, decision.rule, decision.approvers) == expected


def test_a_rule_of_people_overrules_a_question_only() -> None:
    always = [{"tool": "rm", "id": "r1"}, {"tool": "mv", "id": "r2", "arguments": {"path": "a"}}]
    options = ApprovalOptions(destructive="ask")
    tool: Any = SimpleNamespace(destructive=True)
    asked = decide(options, "rm", {}, tool, CallFacts())
    assert asked.unless_allowed(always, "rm", {}).rule == "always: r1"
    assert asked.unless_allowed(always, "cp", {}) == asked
    assert asked.unless_allowed(always, "mv", {"path": "b"}) == asked
    assert asked.unless_allowed(always, "mv", {"path": "a"}).level == "allow"


@pytest.mark.parametrize("more", [{"approvers": ["U1"]}, {"arguments": {"path": "^secret"}}, {"channel": "C1"}])
def test_no_rule_of_people_overrules_one_that_names_approvers_arguments_or_places(more: dict[str, Any]) -> None:
    options = ApprovalOptions(rules=[{"tool": "rm", "level": "ask", **more}])
    asked = decide(options, "rm", {"path": "secret/x"}, None, CallFacts(channel="C1"))
    assert asked.unless_allowed([{"tool": "rm", "id": "r1"}], "rm", {"path": "secret/x"}) == asked


@pytest.mark.parametrize("given", [{"file_path": "secret/x"}, {"path": "./secret/x"}, {"path": "secret//x"}])
async def test_a_rule_about_a_path_sees_every_form_of_it(given: dict[str, str], tmp_path: Path) -> None:
    agent = await make_agent()
    await mount_filesystem(agent.coordinator, {"root": str(tmp_path)})
    tool = agent.coordinator.get("tools", "write_file")
    rules = {"rules": [{"tool": "write_file", "arguments": {"path": "^secret"}, "level": "deny"}]}
    assert decide(ApprovalOptions(**rules), "write_file", given, tool, CallFacts()).level == "deny"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rules": [{"level": "ask", "arguments": {"path": "("}}]}, "is no regular expression"),
        ({"rules": [{"level": "ask", "approvers": ["ana"]}]}, "'ana' is neither a user id"),
        ({"rules": [{"level": "ask-two", "approvers": ["U1"]}]}, "two people must answer"),
        ({"rules": [{"level": "ask-two"}], "approvers": ["U1"]}, "two people must answer"),
        ({"destructive": "ask-two", "approvers": "U1"}, "two people must answer"),
        ({"rules": [{"level": "maybe"}]}, "rules.0.level"),
        ({"approvers": []}, "name at least one approver"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"aproves": "owner"}, "there is no 'aproves'"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match="hooks-approval: ") as refused:
        validate(ApprovalOptions, options, "hooks-approval")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({"rules": [{"tool": "rm", "level": "ask-two", "approvers": ["owner", "U1"]}]}, None),
        ({"approvers": "U2"}, SimpleNamespace(level="ask-two", reason="it deletes", is_final=False)),
    ],
)
async def test_a_call_that_two_must_allow_is_denied_where_only_one_may(options, own):
    agent = await guarded(options, own, facts=lambda: {"person": "U1"})
    await agent.session.execute("go")
    assert "two people must allow it, and only one may" in str(await results(agent))


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("a\n", "a\r\n", ["-a", "+a␍"]),
        ("a", "a\n", ["-a", "\\ No newline at end of file", "+a"]),
        ("a\u2028b", "a b", ["+a b"]),
    ],
)
def test_a_diff_shows_every_change(old, new, shown):
    lines = diff("a.txt", old, new).splitlines()
    assert [each for each in lines if each in shown] == shown


async def guarded(options: dict[str, Any], own: Any = None, **capabilities: Any) -> Agent:
    """An agent that calls `rm`, with the hook; `own` is the decision of the tool itself."""
    tool = having(echo("rm"), destructive=True, approval=lambda _: own)
    agent = await make_agent(call(use("rm", "a", path="x")), say("ok"), tools=[tool])
    for name, capability in capabilities.items():
        agent.coordinator.register_capability(f"approvals.{name}", capability)
    await mount(agent.coordinator, options)
    return agent


async def broken() -> Any:
    raise OSError("the store is gone")


async def hanging() -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("options", "capabilities", "expected"),
    [
        ({}, {}, "No approval system is available"),
        ({"destructive": "deny"}, {}, "rm is not allowed here (default: it is destructive)."),
        ({}, {"always": broken}, "It could not be decided"),
        ({}, {"facts": lambda: 1 / 0}, "It could not be decided"),
    ],
)
async def test_what_is_not_decided_or_not_asked_is_denied(options: Any, capabilities: Any, expected: str) -> None:
    agent = await guarded(options, **capabilities)
    agent.coordinator.approval_system = None
    assert await soon(agent.session.execute("go")) == "ok"
    (result,) = (await results(agent)).values()
    assert expected in result


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("write_file", {"path": "../x", "content": "a"}, "is not in the workspace"),
        ("write_file", {"path": "kept/x", "content": "a"}, "the configuration of this agent protects it"),
        ("edit_file", {"path": "x"}, "'old_string' is missing"),
        ("bash", {"command": ""}, "command"),
    ],
)
async def test_no_one_is_asked_about_a_call_that_the_tool_refuses(tool, arguments, problem, tmp_path: Path) -> None:
    agent = await make_agent(call(use(tool, "a", **arguments)), say("ok"))
    await mount_filesystem(agent.coordinator, {"root": str(tmp_path), "denied_write_paths": ["kept"]})
    await mount_bash(agent.coordinator, {"root": str(tmp_path), "sandbox": "none"})
    await mount(agent.coordinator, {})
    agent.coordinator.approval_system = None
    assert await soon(agent.session.execute("go")) == "ok"
    (result,) = (await results(agent)).values()
    assert problem in result
    row = next(row for row in await agent.context.get_messages() if row["role"] == "tool")
    assert row["metadata"]["approval"] == {"level": "deny", "rule": "the tool refuses the arguments"}


async def test_the_log_keeps_each_decision() -> None:
    agent = await guarded({"rules": [{"tool": "rm", "level": "allow", "name": "fine"}]})
    assert await soon(agent.session.execute("go", on_progress=agent.progress)) == "ok"
    row = next(row for row in await agent.context.get_messages() if row["role"] == "tool")
    assert row["metadata"]["approval"] == {"level": "allow", "rule": "fine"}
    assert agent.complete()["tools"][0]["approval"] == {"level": "allow", "rule": "fine"}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"path": "a.txt"}, "*path*: `a.txt`"),
        ({"command": "rm -rf a\nrm -rf b"}, "*command*:\n```\nrm -rf a\nrm -rf b\n```"),
        ({"text": "```\nend"}, "*text*:\n````\n```\nend\n````"),
        ({"n": 3, "on": True, "list": [1]}, "*n*: `3`\n*on*: `true`\n*list*:\n```\n[\n  1\n]\n```"),
        ({"a b": " "}, '"a b": (blank)'),
        ({}, "(It has no arguments.)"),
        ({"command": "ls \u202e# fr mr"}, r"*command*: `ls \u{202e}# fr mr`"),
        ({"command": "ls\u200b\x1b[8m\U000e0041"}, r"*command*: `ls\u{200b}\u{1b}[8m\u{e0041}`"),
        ({"text": "a\r\nb\rc"}, "*text*:\n```\na\nb\\u{d}c\n```"),
        ({"command": "rm\u2800\u3164\ufe0f\u200d x"}, r"*command*: `rm\u{2800}\u{3164}\u{fe0f}\u{200d} x`"),
    ],
)
async def test_arguments_are_shown_in_readable_form(arguments: dict[str, Any], shown: str) -> None:
    assert await preview(None, arguments) == shown


async def test_arguments_that_the_tool_will_refuse_are_shown_with_the_reason() -> None:
    class Strict:
        name = "strict"

        def preview(self, arguments: dict[str, Any]) -> str:
            raise ValueError(f"'path' is missing in {sorted(arguments)}.")

    shown = "The tool refuses these arguments, so that no one is asked: 'path' is missing in ['file'].\n*file*: `a`"
    assert await preview(Strict(), {"file": "a"}) == shown
