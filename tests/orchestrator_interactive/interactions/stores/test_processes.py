"""Several processes write one store, and some are killed."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import place_of
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores import open_store

_WRITER = """
import asyncio, sys
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import AssistantMessageState, UserMessageState
from orchestrator_interactive.interactions.stores import open_store

async def main(url, conversation_id, most):
    store = await open_store(url)
    stack = InteractionStack(store, conversation_id, "alpha")
    for number in range(int(most)):
        refs = await stack.push(UserMessageState(f"{number}" * 500), AssistantMessageState(f"{number}"))
        print(*refs, flush=True)
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def _writer(url, conversation_id, most=1_000_000):
    """Start a process that pushes until it is killed, and prints the refs of each push on a line."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _WRITER, url, conversation_id, str(most)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(("kind", "pushes"), [("sqlite", 1), ("sqlite", 40), ("sqlite", 300), ("redis", 40)])
async def test_a_conversation_continues_after_a_kill_with_every_reported_push(request, kind, pushes):
    url = request.getfixturevalue(f"{kind}_url")
    async with _writer(url, "c") as process:
        reported = [(await process.stdout.readline()).split() for _ in range(pushes)]
        process.send_signal(signal.SIGKILL)
        rest = await process.stdout.read()
        # An incomplete line is not a report.
        reported += [line.split() for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    store = await open_store(url)
    stack = InteractionStack(store, "c", "alpha")
    length = await stack.length()
    assert length in (2 * len(reported), 2 * len(reported) + 2)  # an unreported push, complete or absent
    for refs in reported:
        for ref, name in zip(refs, ("UserMessageState", "AssistantMessageState"), strict=True):
            _, _, index = place_of(ref.decode())
            assert type(await stack.at(index)).__name__ == name
    await stack.push(UserMessageState("on"))
    assert await stack.length() == length + 1
    await store.aclose()


async def test_concurrent_processes_create_a_file_and_lose_nothing(sqlite_url):
    async def write(name):
        async with _writer(sqlite_url, name, 50) as process:
            _, said = await process.communicate()
            return process.returncode, said.decode()

    assert await asyncio.gather(*[write(f"c{number}") for number in range(3)]) == [(0, "")] * 3
    store = await open_store(sqlite_url)
    for number in range(3):
        assert await InteractionStack(store, f"c{number}", "alpha").length() == 100
    await store.aclose()


async def test_the_write_ahead_log_is_bounded(tmp_path):
    path = tmp_path / "logs.db"
    store = await open_store(f"sqlite:{path}")
    stack = InteractionStack(store, "c", "a")
    for number in range(3000):
        await stack.push(UserMessageState(f"{number} {'x' * 1000}"))
    assert path.with_name("logs.db-wal").stat().st_size < 24 * 2**20  # three thousand pushes would be 48
    await store.aclose()
