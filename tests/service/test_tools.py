"""Tools of a whole service: a task for each, approved by a click where that is needed, and stopped without a trace."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Self
from uuid import uuid4

import pytest
from aiohttp import web
from anthropic_server import message, text, tool_call
from model_scripts import TestThread
from sandboxes import require

from connector.setup import manifest
from local_slack import LocalSlack

ALLOW = "request_choose_0"
FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools:
      - tool-filesystem
      - {{module: tool-bash, config: {{rules: [{{command: rm, level: deny}}]}}}}
      - {{module: tool-web, config: {{allow_private: true, ports: [{port}]}}}}
      - {{module: tool-skills, config: {{folders: skills}}}}
      - module: tool-mcp
        config: {{servers: {{desk: {{command: "{python}", args: ["{server}", "{mark}"]}}}}}}
    hooks: [{{module: hooks-approval, config: {{unmarked: allow}}}}, hooks-context-files]
workspace: {{root: files}}
store: "{store}"
"""
SERVER = """
import asyncio
from mcp.server.mcpserver import MCPServer
server = MCPServer("desk")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
@server.tool()
async def wait() -> str:
    await asyncio.sleep(300)
    return "late"
server.run("stdio")
"""
PAGE = "<html><head><title>News</title></head><body><article><p>The launch date: 3 May.</p></article></body></html>"


class Site:
    """A web page, and one that does not end."""

    def __init__(self) -> None:
        self.port = 0
        self.asked, self.left = asyncio.Event(), asyncio.Event()
        app = web.Application()
        app.router.add_get("/page", self._page)
        app.router.add_get("/slow", self._slow)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def _slow(self, _: web.Request) -> web.Response:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()
        raise AssertionError

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def processes_of(mark: str) -> list[str]:
    """Return the command lines of processes with a mark, without the service itself."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(line)
    return found


@pytest.fixture
async def site():
    async with Site() as site:
        yield site


@pytest.fixture
async def slack():
    async with LocalSlack(manifest=manifest(["Alpha"], command="/alpha")) as slack:
        yield slack


@pytest.fixture
def mark():
    return f"mark{uuid4().int % 10**12}"


@pytest.fixture
def serve(environment, model, config_file, sqlite_url, tmp_path, site, mark):  # noqa: PLR0917
    require("bubblewrap", "landlock")
    (tmp_path / "skills" / "letters").mkdir(parents=True)
    (tmp_path / "skills" / "letters" / "SKILL.md").write_text(
        "---\nname: letters\ndescription: Letters.\n---\nBe kind."
    )
    (tmp_path / "server.py").write_text(SERVER)
    facts = {"python": sys.executable, "server": tmp_path / "server.py", "mark": mark, "port": site.port}
    path = str(config_file(FILE.format(store=sqlite_url, **facts)))
    return lambda: environment.serving("--config", path, **model.env)


TASKS = {
    "write_file": ({"path": "a.md", "content": "one\ntwo\n"}, True, "Wrote a.md"),
    "bash": ({"command": "echo $((6 * 7))"}, True, "exit code 0"),
    "web_fetch": ({"url": "http://127.0.0.1:{port}/page"}, False, "The launch date: 3 May."),
    "load_skill": ({"skill": "letters"}, False, "Be kind."),
    "desk__add": ({"a": 40, "b": 2}, False, "42"),
}


@pytest.mark.parametrize("tool", TASKS)
async def test_a_task_for_each_tool(serve, slack, environment, model, site, tool):  # noqa: PLR0917
    given, asks, expected = TASKS[tool]
    arguments = json.loads(json.dumps(given).replace("{port}", str(site.port)))
    answers = [message(tool_call(tool, arguments)), message(text("fine"))]
    model.otherwise = lambda _: answers.pop(0)
    thread = TestThread(slack, environment)
    async with serve() as service:
        await thread.begin(service)
        if asks:
            question = await thread.until_said(f"Allow {tool}?")
            assert not any(expected in json.dumps(body) for body in model.bodies)
            await thread.ana.click("general", question.ts, ALLOW)
        await thread.answered()
        assert expected in json.dumps(model.bodies[-1]["messages"][-1])
        assert await service.ended(signal.SIGTERM) == 0


STOPPED = {
    "bash": {"command": "setsid sleep 300 & trap '' TERM; echo {mark}; sleep 300"},
    "web_fetch": {"url": "http://127.0.0.1:{port}/slow"},
    "desk__wait": {},
}


@pytest.mark.parametrize("tool", STOPPED)
async def test_a_stop_during_a_call_leaves_nothing(serve, slack, environment, model, site, mark, tool):  # noqa: PLR0917
    text_of = json.dumps(STOPPED[tool]).replace("{port}", str(site.port)).replace("{mark}", mark)
    answers = [message(tool_call(tool, json.loads(text_of)))]
    model.otherwise = lambda _: answers.pop(0) if answers else message(text("fine"))
    thread = TestThread(slack, environment)
    async with serve() as service:
        await thread.begin(service)
        if tool == "bash":
            question = await thread.until_said("Allow bash?")
            await thread.ana.click("general", question.ts, ALLOW)
            async with asyncio.timeout(50):
                while not processes_of("sleep 300"):  # noqa: ASYNC110 - nothing reports processes
                    await asyncio.sleep(0.02)
        elif tool == "web_fetch":
            await asyncio.wait_for(site.asked.wait(), 50)
        else:
            await thread.until_said("wait")
        await thread.say("stop")
        await thread.until_said("🛑 Stopped by Ana.")
        if tool == "web_fetch":
            await asyncio.wait_for(site.left.wait(), 20)
        async with asyncio.timeout(50):
            while processes_of(f"echo {mark}"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await service.ended(signal.SIGTERM) == 0
    async with asyncio.timeout(50):
        while processes_of(mark):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_killed_service_leaves_no_process_and_says_that_the_outcome_is_unknown(
    serve, slack, environment, model, mark
):
    answers = [message(tool_call("bash", {"command": f"echo {mark}; sleep 300"}))]
    model.otherwise = lambda _: answers.pop(0) if answers else message(text("fine"))
    thread = TestThread(slack, environment)
    async with serve() as service:
        await thread.begin(service)
        question = await thread.until_said("Allow bash?")
        await thread.ana.click("general", question.ts, ALLOW)
        async with asyncio.timeout(50):
            while not processes_of(f"echo {mark}"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await service.ended(signal.SIGKILL)
    async with asyncio.timeout(50):
        while processes_of(mark):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    async with serve() as service:
        await thread.answered()
        assert "its outcome is unknown" in json.dumps(model.bodies[-1]["messages"])
        assert await service.ended(signal.SIGTERM) == 0
