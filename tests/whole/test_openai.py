"""Agents whose model is behind the Chat Completions API: alone, for one instance, and as a fallback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anthropic_server import AnthropicServer, text, tool_call
from pydantic import SecretStr
from service_fixtures import serving_in_process

from connector.setup import manifest
from local_slack import LocalSlack
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, ServiceConfig, WorkspaceConfig

COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/messages"


def openai(server: AnthropicServer, **options: Any) -> ModuleConfig:
    return ModuleConfig(module="provider-openai", config={"base_url": f"{server.base_url}/v1", "model": "m", **options})


def claude(server: AnthropicServer) -> ModuleConfig:
    return ModuleConfig(module="provider-anthropic", config={"base_url": server.base_url, "api_key": "sk-ant-x"})


@asynccontextmanager
async def serving(folder: Path, **providers: tuple[ModuleConfig, ...]) -> AsyncIterator[LocalSlack]:
    """Serve agents with these providers, by the name of the agent."""
    loop = ModuleConfig(module="loop-interactive", config={"max_retries": 0})
    instances = {
        name: InstanceConfig(
            persona=PersonaConfig(name=name.capitalize(), emoji=":owl:"),
            providers=each,
            tools=(ModuleConfig(module="tool-filesystem"),),
            orchestrator=loop,
        )
        for name, each in providers.items()
    }
    config = ServiceConfig(
        instances=instances,
        workspace=WorkspaceConfig(root=folder / "files"),
        store=SecretStr(f"sqlite:{folder}/office.db"),
    )
    personas = [each.persona.name for each in instances.values()]
    async with LocalSlack(manifest=manifest(personas)) as slack, serving_in_process(slack, config):
        yield slack


async def answer(slack: LocalSlack, said: str, expected: str) -> None:
    """Begin a thread, and wait for this answer in it."""
    root = await slack.as_person("ana").say("general", said)
    channel = slack.channel("general").id
    await slack.until(lambda ws: any(m.by_bot and m.text == expected for m in ws.thread(channel, root)))


async def test_a_message_leads_to_a_tool_call_and_an_answer_in_the_thread(tmp_path: Path) -> None:
    async with AnthropicServer() as server, serving(tmp_path, alpha=(openai(server),)) as slack:
        server.reply(text("I look."), tool_call("list_files", {}, call_id="c1"))
        server.reply(text("There are no files."))
        await answer(slack, "@alpha which files are there?", "There are no files.")
    assert [request.path for request in server.requests] == [COMPLETIONS] * 2
    asked, called, result = server.bodies[1]["messages"]
    assert "which files are there?" in str(asked)
    assert [block["type"] for block in called["content"]] == ["text", "tool_use"]
    assert result["content"][0]["tool_use_id"] == "c1"


async def test_each_instance_has_its_own_provider(tmp_path: Path) -> None:
    async with AnthropicServer() as one, AnthropicServer() as other:
        one.reply(text("I am Claude."))
        other.reply(text("I am not."))
        async with serving(tmp_path, alpha=(claude(one),), beta=(openai(other),)) as slack:
            await answer(slack, "@alpha who are you?", "I am Claude.")
            await answer(slack, "@alpha beta: who are you?", "I am not.")
    assert ([each.path for each in one.requests], [each.path for each in other.requests]) == ([MESSAGES], [COMPLETIONS])


async def test_it_takes_over_in_the_middle_of_a_run_as_the_fallback_of_claude_and_of_itself(tmp_path: Path) -> None:
    async with AnthropicServer() as server:
        local = openai(server, model="local").model_copy(update={"name": "local"})
        server.reply(tool_call("list_files", {}, call_id="toolu_1"))
        server.fail(529, "overloaded_error")
        server.fail(503)
        server.reply(text("No files, says the third."))
        async with serving(tmp_path, alpha=(claude(server), openai(server), local)) as slack:
            await answer(slack, "@alpha which files?", "No files, says the third.")
    found = [(request.path, request.body["model"]) for request in server.requests]
    assert [path for path, _ in found] == [MESSAGES, MESSAGES, COMPLETIONS, COMPLETIONS]
    assert [model for _, model in found[2:]] == ["m", "local"]
    assert server.bodies[3]["messages"][1]["content"][0]["id"] == "toolu_1"
