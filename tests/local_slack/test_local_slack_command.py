"""``python -m local_slack`` as a user runs it."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import aiohttp

Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[Process] = []

    async def run(*arguments: str) -> Process:
        command = (sys.executable, "-m", "local_slack", *arguments)
        running.append(await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE))
        return running[-1]

    yield run
    for process in running:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def url_of(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(10):
        while line := await process.stdout.readline():
            if match := re.search(rb"http://127\.0\.0\.1:\d+/", line):
                return match[0].decode()
    raise AssertionError("no address was printed")


async def ended(process: Process) -> tuple[int, str, str]:
    async with asyncio.timeout(10):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_prints_its_address_serves_and_ends_quietly(
    start: Start, session: aiohttp.ClientSession, number: signal.Signals
) -> None:
    process = await start("--port", "0", "--people", "dora", "--bot", "omega")
    url = await url_of(process)
    async with session.get(url + "page/state.json") as response:
        state = await response.json()
    assert [person["name"] for person in state["people"]] == ["dora"]
    process.send_signal(number)
    code, out, err = await ended(process)
    assert (code, err) == (0, "")
    assert f"SLACK_API_URL={url}api/" in out
    assert "SLACK_BOT_TOKEN=xoxb-local-omega" in out


async def test_a_command_gets_the_variables_and_gives_the_exit_code(start: Start) -> None:
    script = 'echo "child $SLACK_API_URL $SLACK_APP_TOKEN $SLACK_BOT_TOKEN"; exit 7'
    code, out, _ = await ended(await start("--port", "0", "--", "sh", "-c", script))
    assert code == 7
    assert re.search(r"child http://127\.0\.0\.1:\d+/api/ xapp-local-alpha xoxb-local-alpha", out)


async def test_a_signal_ends_the_command_too(start: Start) -> None:
    script = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit('asked to end'))\n"
    process = await start("--port", "0", "--", sys.executable, "-c", script + "print('up', flush=True); time.sleep(60)")
    assert process.stdout is not None
    while (await process.stdout.readline()).strip() != b"up":
        pass
    process.send_signal(signal.SIGTERM)
    code, _, err = await ended(process)
    assert code == 0
    assert "asked to end" in err
    assert "Traceback" not in err


async def test_a_command_that_can_not_start_is_named(start: Start) -> None:
    code, _, err = await ended(await start("--port", "0", "--", "no-such-command"))
    assert code == 127
    assert err == "Error: cannot start 'no-such-command': No such file or directory\n"


async def test_a_busy_port_is_one_clear_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = await ended(await start("--port", str(port)))
    assert (code, out) == (1, "")
    assert err == f"Error: port {port} on 127.0.0.1 is already in use; choose another one with --port\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--port", "70000"), "70000"),
        (("--host", "0.0.0.0"), "0.0.0.0"),  # noqa: S104 - must be refused
        (("--people", "Ana Lee"), "Ana Lee"),
    ],
)
async def test_wrong_usage_is_explained(start: Start, arguments: tuple[str, ...], says: str) -> None:
    code, _, err = await ended(await start(*arguments))
    assert code == 2
    assert says in err
    assert "Traceback" not in err
