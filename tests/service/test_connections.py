"""Accounts of people, from the model's call over a private link to the tool's result, in a real service."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import aiohttp
import pytest
from anthropic_server import text, tool_call
from mcp_oauth_server import OAuthServer
from service_process import BOTH_PLACES

from orchestrator_interactive.modules import tool_mcp

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    tools:
      - module: tool-mcp
        source: {source}
        config:
          servers: {{work: {{url: "{server}/mcp", auth: oauth}}}}
connections: {{listen: "127.0.0.1:{port}", public_url: "http://127.0.0.1:{port}", keys: {{k1: {key}}}}}
workspace: {{root: files}}
store: sqlite:kept.db
"""
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.fixture
async def server():
    async with OAuthServer() as server:
        yield server


@pytest.fixture
def given(config_file, server, free_port):
    source = Path(tool_mcp.__file__).parent
    return config_file(FILE.format(source=source, server=server.base, port=free_port, key=KEY))


@pytest.fixture
def serve(agents_in, environment, model_env, given):
    return lambda: environment.serving("--config", str(given), **model_env)


async def log_in(whisper) -> str:
    [link] = re.findall(r"http://127\.0\.0\.1:\d+/connect/[^|>\s\"]+", json.dumps(whisper.blocks))[:1]
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(link) as response:
            page = await response.text()
        [href] = re.findall(r"<a href='([^']+)'", page)
        async with browser.get(href.replace("&amp;", "&")) as response:
            return page + await response.text()


async def whispered(slack, to, text_of="Connect your account of work?"):
    channel = slack.channel("general").id
    return await slack.until(
        lambda ws: next((w for w in ws.whispers(channel) if text_of in w.text and w.only_for == to.person.id), None)
    )


@BOTH_PLACES
async def test_a_person_connects_in_private_and_only_their_calls_use_it(serve, slack, environment, model, server):
    ana, ben = slack.as_person("ana"), slack.as_person("ben")
    async with serve() as service:
        await service.says("service.ready")
        await slack.until(lambda ws: ws.bot_online)
        model.reply(tool_call("work__connect"))
        model.reply(text("Connected."))
        root = await ana.say("general", "@alpha connect work")
        server.account = "ana@example.test"
        assert "Are you Ana" in await log_in(await whispered(slack, ana))
        await slack.until(lambda _: environment.said(root)[-1:] == ["Connected."])
        model.reply(tool_call("work__whoami"))
        model.reply(text("That is you."))
        await ana.say("general", "who am I?", thread=root)
        await slack.until(lambda _: environment.said(root)[-1:] == ["That is you."])
        assert "You are ana@example.test" in json.dumps(model.bodies[-1])
        model.reply(tool_call("work__whoami"))
        model.reply(text("And that is Ben."))
        await ben.say("general", "@alpha and me?", thread=root)
        server.account = "ben@example.test"
        await log_in(await whispered(slack, ben))
        await slack.until(lambda _: environment.said(root)[-1:] == ["And that is Ben."])
        assert server.calls == ["ana@example.test", "ben@example.test"]
        public = [each for each in slack.record if each.get("method") in {"chat.postMessage", "chat.update"}]
        assert "/connect/" not in str(public)
        assert await service.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_a_call_that_waits_for_a_login_survives_the_service(serve, slack, environment, model, end):
    ana = slack.as_person("ana")
    async with serve() as service:
        await service.says("service.ready")
        await slack.until(lambda ws: ws.bot_online)
        model.reply(tool_call("work__connect"))
        model.reply(text("Connected."))
        root = await ana.say("general", "@alpha connect work")
        first = await whispered(slack, ana)
        await service.ended(end)
    async with serve() as service:
        await service.says("service.ready")
        channel = slack.channel("general").id
        await slack.until(lambda ws: len([w for w in ws.whispers(channel) if "Connect your account" in w.text]) > 1)
        assert "Thank you" in await log_in(first)  # the link stays the same
        await slack.until(lambda _: environment.said(root)[-1:] == ["Connected."])
        assert "outcome is unknown" not in json.dumps(model.bodies[-1])
        assert await service.ended(signal.SIGTERM) == 0
