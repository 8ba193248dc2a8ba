"""Render policies."""

from typing import Any
from uuid import uuid4

import pytest
from interaction_states import brought, called, said

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import InteractionError
from orchestrator_interactive.interactions.render import render_for_llm
from orchestrator_interactive.interactions.render_policies import (
    PolicyError,
    UnknownPolicy,
    policy_named,
    register_policy,
)
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
)
from orchestrator_interactive.interactions.stores.memory import MemoryStore

Rendered = list[dict[str, Any]]
WITH_AGENT = [
    said("Is it good?"),
    AssistantMessageState("I ask."),
    AgentCallState("helper", "Please analyze\nthis data", "c1"),
    AgentResultState("c1", {"status": "success"}, score=0.9),
    AssistantMessageState("Yes."),
]


async def rendered(*states: BaseState, **options: Any) -> Rendered:
    stack = InteractionStack(MemoryStore(), "c", "a")
    await stack.push(*states)
    return await render_for_llm(stack, **options)


def a_name() -> str:
    return f"test-{uuid4().hex}"


async def test_default_omits_calls_between_agents() -> None:
    said_only = [("user", "Is it good?"), ("assistant", "I ask."), ("assistant", "Yes.")]
    assert [(m["role"], m["content"]) for m in await rendered(*WITH_AGENT)] == said_only


async def test_agents_includes_the_calls_between_agents() -> None:
    messages = await rendered(*WITH_AGENT, policy_name="agents")
    assert messages[2:4] == [
        {"role": "assistant", "content": "[I asked helper:]\n  Please analyze\n  this data"},
        {"role": "user", "content": '[The answer of helper, score 0.9:]\n  {"status": "success"}'},
    ]
    assert len(messages) == 5


async def test_summary_keeps_the_last_messages_and_summarises_the_others() -> None:
    turns = [
        *(said("Look  at\nthe roof"), called("a"), brought("a"), AssistantMessageState("It leaks.")),
        *(said("And " + 200 * "the cellar "), called("b"), called("c", "dig"), brought("b"), brought("c")),
        *(AgentCallState("helper", "Why?", "x"), AgentResultState("x", "Rain."), AssistantMessageState("It is wet.")),
        *(said("Thanks"), AssistantMessageState("Any time.")),
    ]
    messages = await rendered(*turns, policy_name="summary", keep_last=2)
    note = messages[0]["content"]
    assert [m["content"] for m in messages[1:]] == ["Thanks", "Any time."]
    assert messages[0]["role"] == "user"
    assert note.splitlines()[:2] == [
        "[Earlier in this conversation, 11 messages that are not shown:]",
        "- A person wrote: Look at the roof",
    ]
    assert note.splitlines()[3:] == [
        "- Tools that ran: look (2 times), dig (1 time).",
        "- Agents that were asked: helper (1 time).",
        "- The last answer was: It is wet.",
    ]
    assert len(note) < 700


async def test_summary_keeps_calls_and_results_together() -> None:
    states = [said("Hi"), AssistantMessageState("I look."), called("a"), called("b"), brought("a"), brought("b")]
    for keep_last in (1, 2, 3):
        messages = await rendered(*states, policy_name="summary", keep_last=keep_last)
        assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool"]
        assert messages[0]["content"].startswith("[Earlier in this conversation, 1 message that")
    assert (await rendered(*states, policy_name="summary"))[0]["content"] == "Hi"
    assert len(await rendered(*states, policy_name="summary", keep_last=0)) == 1
    with pytest.raises(ValueError, match="0 or more"):
        await rendered(*states, policy_name="summary", keep_last=-1)


async def test_summary_of_many_messages_lists_the_latest() -> None:
    messages = await rendered(*(said(f"message {n}") for n in range(100)), policy_name="summary", keep_last=1)
    lines = messages[0]["content"].splitlines()
    assert lines[1] == "- 79 more messages of people came before these."
    assert lines[2] == "- A person wrote: message 79"
    assert lines[-1] == "- A person wrote: message 98"


async def test_a_custom_policy_gets_the_messages_and_its_options() -> None:
    name = a_name()

    @register_policy(name)
    def loud(messages: Rendered, *, mark: str, **_: Any) -> Rendered:
        return [{**message, "content": message["content"].upper() + mark} for message in messages]

    assert (await rendered(said("Hi"), policy_name=name, mark="!"))[0]["content"] == "HI!"
    assert policy_named(name) is loud
    between_agents_left_out = await rendered(*WITH_AGENT[:4], policy_name=name, mark="!")
    assert [message["content"] for message in between_agents_left_out] == ["IS IT GOOD?!", "I ASK.!"]


async def test_the_error_of_an_unknown_policy_lists_the_existing_ones() -> None:
    with pytest.raises(
        UnknownPolicy, match=r"no render policy 'sumary'; existing policies: .*default.*summary"
    ) as raised:
        await rendered(said("Hi"), policy_name="sumary")
    assert isinstance(raised.value, InteractionError)


@pytest.mark.parametrize("made", [None, "text", ["text"], [{"content": "Hi"}], ({"role": "user"},)])
async def test_a_policy_must_return_messages(made: Any) -> None:
    name = a_name()
    register_policy(name)(lambda _messages, **_: made)
    with pytest.raises(PolicyError, match="must return a list of messages"):
        await rendered(said("Hi"), policy_name=name)


@pytest.mark.parametrize("gone", ["assistant", "tool"])
async def test_a_policy_that_separates_a_call_from_its_result_is_an_error(gone: str) -> None:
    name = a_name()
    register_policy(name)(lambda messages, **_: [each for each in messages if each["role"] != gone])
    with pytest.raises(PolicyError, match="separates a call from its result: 'a'"):
        await rendered(said("Hi"), called("a"), brought("a"), said("Well?"), policy_name=name)


async def test_a_built_in_policy_can_be_replaced_as_in_the_document() -> None:
    built_in = policy_named("summary")

    @register_policy("summary")
    def summary_policy(messages: Rendered, **_: Any) -> Rendered:
        return messages[-1:]

    try:
        states = [said("One"), AssistantMessageState("1"), said("Two")]
        assert await rendered(*states, policy_name="summary") == [{"role": "user", "content": "Two"}]
    finally:
        register_policy("summary")(built_in)
    assert policy_named("summary") is built_in


async def test_the_name_of_a_custom_policy_is_unique() -> None:
    def first(messages: Rendered, **_: Any) -> Rendered:
        return messages

    def second(messages: Rendered, **_: Any) -> Rendered:
        return messages

    name = a_name()
    for _ in range(2):
        register_policy(name)(first)
    with pytest.raises(ValueError, match=f"already a render policy '{name}'"):
        register_policy(name)(second)
    with pytest.raises(ValueError, match="must not be blank"):
        register_policy(" ")
    assert policy_named(name) is first
