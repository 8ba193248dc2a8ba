"""Agents that a language model moves: made of a configuration, over a log that outlives the process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import after, call, echo, fail, say, soon, told, use
from anthropic_server import AnthropicServer, text
from registry_fixtures import RegistryFixture
from virtual_time import in_virtual_time

from orchestrator_interactive.interactions.rendering.policies import register_policy
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.registries import AgentRegistry, LLMAgent, LLMAgents
from orchestrator_interactive.registries.schemas import LLMAgentConfig
from orchestrator_interactive.registries.templates import TemplateError, TemplateManager

if TYPE_CHECKING:
    from pathlib import Path


async def test_an_agent_answers_and_remembers() -> None:
    house = RegistryFixture()
    script = await house.add("alpha", say("Hi!"), say("You said hello."))
    assert await house.run("alpha", "Hello!") == "Hi!"
    assert await house.run("alpha", "What did I say?") == "You said hello."
    assert told(script.sent()) == [("user", "Hello!"), ("assistant", "Hi!"), ("user", "What did I say?")]


async def test_an_agent_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'logs.db'}"
    house = RegistryFixture(await open_store(url), [echo()])
    await house.add("alpha", call(use("echo", "a", text="moo")), say("It says moo."), tools=["echo"])
    await house.run("alpha", "What does the cow say?")
    await house.store.aclose()

    again = RegistryFixture(await open_store(url), [echo()])
    script = await again.add("alpha", say("Moo, as I said."))
    assert await again.run("alpha", "Once more?") == "Moo, as I said."
    assert [text for _, text in told(script.sent())] == [
        "What does the cow say?",
        "",
        "moo",
        "It says moo.",
        "Once more?",
    ]
    await again.store.aclose()


async def test_conversations_do_not_know_of_each_other() -> None:
    house = RegistryFixture()
    script = await house.add("alpha", say("a"), say("b"))
    await house.run("alpha", "One", "first")
    await house.run("alpha", "Two", "second")
    assert told(script.sent()) == [("user", "Two")]


async def test_a_second_message_to_a_conversation_waits_its_turn_and_other_conversations_do_not() -> None:
    house, gate = RegistryFixture(), asyncio.Event()
    script = await house.add("alpha", after(gate, say("one")), say("elsewhere"), say("two"))
    first = asyncio.create_task(house.run("alpha", "1"))
    await script.asked(1)
    second = asyncio.create_task(house.run("alpha", "2"))
    assert await soon(house.run("alpha", "3", "another talk")) == "elsewhere"
    gate.set()
    assert await soon(asyncio.gather(first, second)) == ["one", "two"]
    assert [text for _, text in told(script.sent())] == ["1", "one", "2"]


async def test_the_behavior_template_leads_every_request(tmp_path: Path) -> None:
    (tmp_path / "terse.md").write_text(
        "You are {{ agent_id }}.{% for name, what in tools.items() %} {{ name }}: {{ what }}{% endfor %}"
    )
    house = RegistryFixture(tools=[echo()], templates=TemplateManager(tmp_path))
    script = await house.add("alpha", say("ok"), behavior_template="terse.md", tools=["echo"])
    await house.run("alpha", "Hello!")
    assert told(script.sent()) == [("system", "You are alpha. echo: Does what 'echo' does."), ("user", "Hello!")]


async def test_a_template_that_wants_what_it_was_not_given_ends_the_run_before_it_begins() -> None:
    house = RegistryFixture()
    await house.add("alpha", behavior_template="Today is {{ today }}, and {{ mood }}.")
    with pytest.raises(TemplateError, match=r"'mood' is undefined\. It was given: agent_id, today, tools"):
        await house.run("alpha")
    assert await house.conversations("alpha") == []


@register_policy("in_capitals")
def in_capitals(messages: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
    return [{**message, "content": message["content"].upper()} for message in messages]


async def test_the_render_policy_says_what_the_model_sees() -> None:
    house = RegistryFixture()
    script = await house.add("alpha", say("Hi!"), say("ok"), render_policy="in_capitals")
    await house.run("alpha", "Hello!")
    await house.run("alpha", "Again!")
    assert told(script.sent()) == [("user", "HELLO!"), ("assistant", "HI!"), ("user", "AGAIN!")]


async def test_an_agent_has_the_tools_of_its_configuration_and_no_others() -> None:
    house = RegistryFixture(tools=[echo(), echo("shout")])
    script = await house.add("alpha", say("ok"), tools=["shout"])
    await house.run("alpha")
    assert [each.name for each in script.requests[0].tools or ()] == ["shout"]


async def test_what_a_provider_raises_reaches_whoever_asked_and_the_conversation_goes_on() -> None:
    house = RegistryFixture()
    await house.add("alpha", fail(AuthenticationError("no such key", provider="x")), say("ok"))
    with pytest.raises(AuthenticationError, match="no such key"):
        await house.run("alpha", "1")
    assert await house.run("alpha", "2") == "ok"


@in_virtual_time
async def test_a_demo_model_is_the_demo_provider() -> None:
    house = RegistryFixture()
    config = LLMAgentConfig(type="llm", id="alpha", llm_model="demo/demo-1")
    await house.registry.register(house.make(config, house.registry), config)
    assert await house.run("alpha", "Hello!")


async def test_an_anthropic_model_is_asked_of_that_provider_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    house = RegistryFixture()
    config = LLMAgentConfig(type="llm", id="alpha", llm_model="anthropic/claude-haiku-4-5")
    await house.repository.save(config)
    async with AnthropicServer() as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        server.reply(text("Bonjour!"))
        assert await house.run("alpha", "Hello!") == "Bonjour!"
        assert server.bodies[0]["model"] == "claude-haiku-4-5"


async def test_a_provider_without_its_key_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    house = RegistryFixture()
    await house.repository.save(LLMAgentConfig(type="llm", id="alpha", llm_model="anthropic/claude-haiku-4-5"))
    with pytest.raises(RuntimeError, match="provider-anthropic mounted nothing"):
        await house.run("alpha", "Hello!")


async def test_a_provider_may_be_a_module_of_a_mount_plan() -> None:
    house = RegistryFixture()
    modules = {"quick": lambda _model: {"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}}
    registry = AgentRegistry(house.repository, LLMAgents(house.store, providers=modules))
    await house.repository.save(LLMAgentConfig(type="llm", id="alpha", llm_model="quick/demo"))
    agent = await registry.get_agent("alpha")
    assert isinstance(agent, LLMAgent)
    assert await agent.run("Hello!", "talk")
