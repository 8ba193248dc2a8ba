"""Agents of a language model: created from a configuration, with a log in a store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import after, call, echo, fail, say, soon, told, use
from anthropic_server import AnthropicServer, text
from registry_fixtures import RegistryFixture
from virtual_time import in_virtual_time

from orchestrator_interactive.interactions.render_policies import register_policy
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.registries import AgentRegistry, LLMAgent, LLMAgents
from orchestrator_interactive.registries.schemas import LLMAgentConfig
from orchestrator_interactive.registries.templates import TemplateError, TemplateManager


async def test_an_agent_continues_its_conversation_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'logs.db'}"
    fixture = RegistryFixture(await open_store(url), [echo()])
    await fixture.add("alpha", call(use("echo", "a", text="moo")), say("It says moo."), tools=["echo"])
    await fixture.run("alpha", "What does the cow say?")
    await fixture.store.aclose()

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


async def test_conversations_are_separate() -> None:
    fixture = RegistryFixture()
    script = await fixture.add("alpha", say("a"), say("b"))
    await fixture.run("alpha", "One", "first")
    await fixture.run("alpha", "Two", "second")
    assert told(script.sent()) == [("user", "Two")]


async def test_messages_to_one_conversation_run_one_after_the_other() -> None:
    fixture, gate = RegistryFixture(), asyncio.Event()
    script = await fixture.add("alpha", after(gate, say("one")), say("elsewhere"), say("two"))
    first = asyncio.create_task(fixture.run("alpha", "1"))
    await script.asked(1)
    second = asyncio.create_task(fixture.run("alpha", "2"))
    assert await soon(fixture.run("alpha", "3", "another talk")) == "elsewhere"
    gate.set()
    assert await soon(asyncio.gather(first, second)) == ["one", "two"]
    assert [text for _, text in told(script.sent())] == ["1", "one", "2"]


async def test_the_behavior_template_leads_every_request(tmp_path: Path) -> None:
    (tmp_path / "terse.md").write_text(
        "You are {{ agent_id }}.{% for name, what in tools.items() %} {{ name }}: {{ what }}{% endfor %}"
    )
    fixture = RegistryFixture(tools=[echo(), echo("shout")], templates=TemplateManager(tmp_path))
    script = await fixture.add("alpha", say("ok"), behavior_template="terse.md", tools=["echo"])
    await fixture.run("alpha", "Hello!")
    assert told(script.sent()) == [("system", "You are alpha. echo: Does what 'echo' does."), ("user", "Hello!")]


async def test_an_undefined_template_variable_is_an_error_before_the_run() -> None:
    fixture = RegistryFixture()
    await fixture.add("alpha", behavior_template="Today is {{ today }}, and {{ mood }}.")
    with pytest.raises(TemplateError, match=r"'mood' is undefined\. It was given: agent_id, today, tools"):
        await fixture.run("alpha")
    assert await fixture.conversations("alpha") == []


@register_policy("in_capitals")
def in_capitals(messages: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
    return [{**message, "content": message["content"].upper()} for message in messages]


async def test_the_render_policy_renders_the_requests() -> None:
    fixture = RegistryFixture()
    script = await fixture.add("alpha", say("Hi!"), say("ok"), render_policy="in_capitals")
    await fixture.run("alpha", "Hello!")
    await fixture.run("alpha", "Again!")
    assert told(script.sent()) == [("user", "HELLO!"), ("assistant", "HI!"), ("user", "AGAIN!")]


async def test_the_error_of_a_provider_is_raised_and_the_conversation_continues() -> None:
    fixture = RegistryFixture()
    await fixture.add("alpha", fail(AuthenticationError("no such key", provider="x")), say("ok"))
    with pytest.raises(AuthenticationError, match="no such key"):
        await fixture.run("alpha", "1")
    assert await fixture.run("alpha", "2") == "ok"


@in_virtual_time
async def test_a_demo_model_uses_the_demo_provider() -> None:
    fixture = RegistryFixture()
    config = LLMAgentConfig(type="llm", id="alpha", llm_model="demo/demo-1")
    await fixture.registry.register(fixture.make(config, fixture.registry), config)
    assert await fixture.run("alpha", "Hello!")


async def test_an_anthropic_model_uses_its_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = RegistryFixture()
    config = LLMAgentConfig(type="llm", id="alpha", llm_model="anthropic/claude-haiku-4-5")
    await fixture.repository.save(config)
    async with AnthropicServer() as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        server.reply(text("Bonjour!"))
        assert await fixture.run("alpha", "Hello!") == "Bonjour!"
        assert server.bodies[0]["model"] == "claude-haiku-4-5"


async def test_a_provider_without_a_key_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    fixture = RegistryFixture()
    await fixture.repository.save(LLMAgentConfig(type="llm", id="alpha", llm_model="anthropic/claude-haiku-4-5"))
    with pytest.raises(RuntimeError, match="provider-anthropic mounted nothing"):
        await fixture.run("alpha", "Hello!")


async def test_the_default_model_uses_provider_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = RegistryFixture()
    await fixture.repository.save(LLMAgentConfig("llm", "alpha"))
    async with AnthropicServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base_url}/v1")
        server.reply(text("Bonjour!"))
        assert await fixture.run("alpha", "Hello!") == "Bonjour!"
        assert server.bodies[0]["model"] == "gpt-4o"


async def test_a_provider_may_be_a_module_of_a_mount_plan() -> None:
    fixture = RegistryFixture()
    modules = {"quick": lambda _model: {"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}}
    registry = AgentRegistry(fixture.repository, LLMAgents(fixture.store, providers=modules))
    await fixture.repository.save(LLMAgentConfig(type="llm", id="alpha", llm_model="quick/demo"))
    agent = await registry.get_agent("alpha")
    assert isinstance(agent, LLMAgent)
    assert await agent.run("Hello!", "talk")
