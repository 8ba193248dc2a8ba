"""An app that is not ours, in ten lines, runs against the local Slack as it would against Slack."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from types import FunctionType

import aiohttp
import pytest
from endpoint import endpoint
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack
from local_slack.__main__ import main
from local_slack.web.tour import read_tour

ROOT = Path(__file__).parents[2]
APP = ROOT / "docs" / "examples" / "ten_line_app.py"
PAGE = ROOT / "docs" / "local-slack.md"

# The same app behind Bolt's WSGI adapter, on a free port that it prints.
OVER_HTTP = """
from wsgiref.simple_server import WSGIRequestHandler, make_server
from slack_bolt.adapter.wsgi import SlackRequestHandler
from ten_line_app import app
WSGIRequestHandler.log_message = lambda *_: None
server = make_server("127.0.0.1", 0, SlackRequestHandler(app))
print(server.server_port, flush=True)
server.serve_forever()
"""


@asynccontextmanager
async def running(slack, *arguments, secret=None):
    variables = slack.variables | ({"SLACK_SIGNING_SECRET": secret} if secret else {})
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=APP.parent, env=os.environ | variables, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


@asynccontextmanager
async def running_over_http(slack, secret=None):
    async with running(slack, "-c", OVER_HTTP, secret=secret) as process:
        assert process.stdout is not None
        port = int(await asyncio.wait_for(process.stdout.readline(), 20))
        await slack.deliver_to(f"http://127.0.0.1:{port}/slack/events")
        yield


async def greeted(slack):
    ts = await slack.as_person("ana").say("general", "hi @alpha")
    await slack.until(lambda w: len(w.thread("C0GENERAL", ts)) == 2)
    assert slack.workspace.thread("C0GENERAL", ts)[1].text == "Hello <@U0ANA>!"
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)


async def test_it_answers_over_socket_mode():
    async with LocalSlack(events=("app_mention",)) as slack, running(slack, str(APP)):
        await slack.until(lambda w: w.bot_online, timeout_s=20)
        await greeted(slack)


async def test_it_answers_over_http_and_checks_the_signature():
    async with LocalSlack(events=("app_mention",)) as slack, running_over_http(slack):
        await greeted(slack)


async def test_it_does_not_take_what_another_secret_signed():
    async with LocalSlack(events=("app_mention",)) as slack:
        with pytest.raises(Exception, match="HTTP 401"):
            async with running_over_http(slack, secret="another"):
                pass


def test_the_page_shows_this_app_and_it_has_ten_lines():
    text = APP.read_text(encoding="utf-8")
    assert f"```python\n{text}```\n" in PAGE.read_text(encoding="utf-8")
    assert len(re.findall(r"^.*\S.*$", text, re.MULTILINE)) == 10


def blocks_below(heading):
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return block


async def run(block, **names):
    code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    coroutine = FunctionType(code, {"LocalSlack": LocalSlack, **names})()
    if code.co_flags & inspect.CO_COROUTINE:
        await coroutine


async def test_the_test_of_the_page_passes(monkeypatch):
    monkeypatch.chdir(APP.parent)
    await run(blocks_below("In a test"))


@pytest.mark.parametrize(
    "heading",
    [
        "Make calls fail",
        "Make deliveries fail",
        "Several workspaces",
        "The record",
        "Other apps, forwarded messages, code snippets",
    ],
)
async def test_what_the_page_shows_can_be_done(heading):
    async with LocalSlack() as slack:
        await run(blocks_below(heading), slack=slack)


async def test_a_click_of_the_page_arrives_over_http():
    button = {"type": "button", "action_id": "approve", "text": {"type": "plain_text", "text": "Yes"}}
    blocks = [{"type": "actions", "elements": [button]}]
    async with endpoint() as there, LocalSlack() as slack:
        client = AsyncWebClient(slack.bot_token, slack.api_url)
        await run(blocks_below("Over HTTP").splitlines()[0], slack=slack, url=there.url)
        await run(blocks_below("Buttons"), slack=slack, client=client, blocks=blocks)
        assert b"approve" in (await there.received(2))[-1].body
        await run(blocks_below("Over HTTP"), slack=slack, url=there.url)


async def test_its_situations_can_be_made():
    section = PAGE.read_text(encoding="utf-8").split("Lasting conditions")[1].split("\n## ")[0]
    situations = re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE)
    assert len(situations) == 8
    async with LocalSlack() as slack:
        root_ts = await slack.as_person("ana").say("general", "root")
        for situation in situations:
            await run(situation, slack=slack, root_ts=root_ts)


async def test_its_forms_of_the_control_api_are_taken():
    (row,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `POST /faults`"))
    bodies = re.findall(r"`(\{.*?\})`", row)
    assert len(bodies) == 4
    kills = []
    async with LocalSlack() as slack, aiohttp.ClientSession() as session:
        slack.control.kill_app = lambda: kills.append(1)
        for body in bodies:
            async with session.post(slack.url + "faults", data=body) as answer:
                assert answer.status == 200
    assert kills == [1]


@pytest.mark.parametrize("tour", ["of the page", "of `amplifier-slack play`"])
def test_a_tour_can_be_used(tour, tmp_path):
    file = ROOT / "service/play/tour.json"
    if tour == "of the page":
        section = PAGE.read_text(encoding="utf-8").split("\n## A guided tour\n")[1]
        file = tmp_path / "tour.json"
        file.write_text(re.findall(r"^```json\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[0])
    assert len(read_tour(file)["steps"]) >= 2


async def test_its_options_are_those_of_the_command():
    options = re.findall(r"^\| `(--[a-z-]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    known = {option for parameter in main.params for option in parameter.opts if option.startswith("--")}
    assert set(options) == known - {"--host"}
