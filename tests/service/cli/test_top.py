"""`amplifier-slack top`, with a service that works in a workspace."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re

from anthropic_server import Gate, text
from service_process import AMPLIFIER_SLACK, run_command


async def test_a_run_is_listed_with_what_it_does_and_stopped_by_an_operator(slack, environment, model, model_env, url):
    store, ana = {"AMPLIFIER_SLACK_STORE": url}, slack.as_person("ana")
    model.reply(text("I begin. "), Gate())
    async with environment.serving(**model_env, **store) as service:
        await service.says("service.ready")
        assert "No run is active." in (await run_command("top", "--once", env=store)).output
        asked = await ana.say("general", "@alpha look")
        await slack.until(lambda _: model.requests, 20)
        (run,) = json.loads((await run_command("top", "--json", env=store)).output)
        channel = slack.channel("general").id
        assert run["conversation"] == f"{slack.team_id}:{channel}:{asked}"
        assert (run["instance"], run["channel"], run["does"]) == ("alpha", channel, "calls the model")
        assert run["owner"]
        assert run["run"][:8] in (await run_command("top", env=store)).output  # not a terminal: printed once
        stopped = await run_command("top", "--stop", run["run"][:6], env=store)
        assert stopped.output == f"Requested the stop of run {run['run']} of alpha in {run['conversation']}.\n"
        await slack.until(lambda _: environment.found(asked, "Stopped by an operator."), 20)
        await service.says('"status": "cancelled"')
    missing = await run_command("top", "--stop", "nothing", env=store)
    assert (missing.code, missing.output) == (
        1,
        "Error: No active run has 'nothing' in the id. `amplifier-slack top --json` shows all ids.\n",
    )


class Terminal:
    """`amplifier-slack top` in a terminal of 120 columns."""

    def __init__(self):
        self.screen = ""
        self._side, self._inside = pty.openpty()
        self._changed = asyncio.Event()

    async def start(self, env):
        env = {**os.environ, **env, "COLUMNS": "120"}
        streams = {"stdin": self._inside, "stdout": self._inside, "stderr": self._inside}
        self._process = await asyncio.create_subprocess_exec(AMPLIFIER_SLACK, "top", env=env, **streams)
        os.close(self._inside)
        asyncio.get_running_loop().add_reader(self._side, self._read)

    def _read(self):
        try:
            self.screen = (self.screen + os.read(self._side, 10_000).decode()).rpartition("\x1b[H")[2]
        except OSError:  # it has ended
            asyncio.get_running_loop().remove_reader(self._side)
        self._changed.set()

    async def shows(self, pattern):
        async with asyncio.timeout(20):
            while not re.search(pattern, self.screen):
                self._changed.clear()
                await self._changed.wait()

    def press(self, key):
        os.write(self._side, key.encode())

    async def ended(self):
        async with asyncio.timeout(50):
            return await self._process.wait()


async def test_keys_stop_a_run_and_quit(slack, environment, model, model_env, sqlite_url):
    store = {"AMPLIFIER_SLACK_STORE": sqlite_url}
    model.reply(text("I begin. "), Gate())
    async with environment.serving(**model_env, **store) as service:
        await service.says("service.ready")
        terminal = Terminal()
        await terminal.start(store)
        await terminal.shows(r"No run is active\.\s+s: stop a run  q: quit")
        asked = await slack.as_person("ana").say("general", "@alpha look")
        await terminal.shows(r"1  \w{8}  alpha .+ 0:\d\d +0  \S+  calls the model")
        terminal.press("s")
        await terminal.shows("Stop which run")
        terminal.press("1")
        await slack.until(lambda _: environment.found(asked, "Stopped by an operator."), 20)
        await terminal.shows(r"No run is active\.")
        terminal.press("q")
        assert await terminal.ended() == 0
