"""`amplifier-slack doctor --store`, beside a service and alone."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from anthropic_server import AnthropicServer, Gate, text
from redis_server import redis_server
from service_process import run_command
from stored_conversations import run

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = "T:C:1.0"


def kept(url: str, closed: Sequence[str] = ()) -> None:
    """Keep two messages; let these have left as delivered, though no log has them."""

    async def keep() -> None:
        async with aclosing(await open_store(url)) as logs, aclosing(await open_run_store(url)) as runs:
            await InteractionStack(logs, HERE, "alpha").restart()
            for name in ("a", "b"):
                await runs.admit(HERE, InboxEntry(name, "message", {}), "alpha")
            claim = await runs.claim(HERE, "owner", 10)
            places = {entry.seq: "" for entry in claim.entries if entry.id in closed}
            await runs.write(HERE, claim.token, StateChanges(closed=places))
            await runs.release(HERE, claim.token, 2)

    asyncio.run(keep())


def pushed(url: str) -> None:
    async def push() -> None:
        async with aclosing(await open_store(url)) as logs:
            await InteractionStack(logs, HERE, "alpha").push(UserMessageState("hello"))

    asyncio.run(push())


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:{tmp_path}/kept.db"


def test_a_store_in_which_all_is_well_is_told_in_a_table(url):
    kept(url)
    result = run("doctor", "--store", url)
    assert result.exit_code == 0, result.output
    counts = dict(line.rsplit(maxsplit=1) for line in result.output.splitlines()[1:-1])
    assert (counts["conversations"], counts["accepted"], counts["waiting"]) == ("1", "2", "2")
    assert (
        result.output.splitlines()[-1] == "Every message is delivered, withdrawn or refused exactly once, or pending."
    )


def test_what_is_wrong_is_told_in_sentences_and_by_the_exit_code(url):
    kept(url, closed=["b"])
    pushed(url)
    result = run("doctor", "--store", url)
    assert result.exit_code == 1, result.output
    assert f"- {HERE}: message b left the inbox as delivered, but is not in the log." in result.output
    told = json.loads(run("doctor", "--store", url, "--json").output)
    assert (told["holds"], told["accepted"], len(told["violations"])) == (False, 2, 1)


def test_the_store_is_the_one_that_the_service_uses_unless_it_is_named(tmp_path, url):
    kept(url)
    assert run("doctor", "--store", AMPLIFIER_SLACK_STORE=url).exit_code == 0
    (tmp_path / "config.yaml").write_text("store: sqlite:kept.db")
    assert run("doctor", "--store", "--config", str(tmp_path / "config.yaml")).exit_code == 0
    assert run("doctor", "--store", "--json", "--config", str(tmp_path / "config.yaml")).exit_code == 0


@pytest.mark.parametrize("store", ["sqlite:nowhere/kept.db", "redis://127.0.0.1:1/0", "memory:", "hunter2-hunter2"])
def test_a_store_that_cannot_be_used_is_told(store):
    result = run("doctor", "--store", store)
    assert result.exit_code == 2
    assert "hunter2" not in result.output


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_it_looks_at_the_store_of_a_service_that_runs(slack, stage, tmp_path, kind):
    with redis_server() as server:
        url = f"sqlite:{tmp_path}/kept.db" if kind == "sqlite" else server.url
        async with AnthropicServer() as model:
            gate = Gate()
            model.reply(gate, text("fine"))
            env = {
                "ANTHROPIC_API_KEY": "sk-ant-of-the-test",
                "ANTHROPIC_BASE_URL": model.base_url,
                "AMPLIFIER_SLACK_STORE": url,
            }
            async with stage.serving(**env) as service:
                await service.says("service.ready")
                ts = await slack.as_person("ana").say("general", "@alpha look")
                await gate.reached.wait()
                ended = await run_command("doctor", "--store", url, "--json")
                during = json.loads(ended.output[ended.output.index("{") :])
                assert ended.code == 0, ended.output
                gate.open()
                await slack.until(lambda _: stage.found(ts, "fine"), 30)
                await slack.until(lambda ws: not ws.message("general", ts).reacted("hourglass_flowing_sand"))
    assert (during["runs_on"], during["leases"], during["accepted"], during["delivered"]) == (1, 1, 1, 1)


@pytest.mark.parametrize("spoilt", ["PRAGMA user_version = 1", "DROP TABLE run_conversations"])
def test_a_file_of_an_earlier_version_is_left_as_it_is(url, spoilt):
    kept(url)
    path = url.removeprefix("sqlite:")
    with sqlite3.connect(path) as file:
        file.execute(spoilt)
        before = [*file.execute("PRAGMA user_version"), *file.execute("SELECT sql FROM sqlite_master")]
    result = run("doctor", "--store", url)
    assert (result.exit_code, "Start the service once" in result.output) == (2, True)
    with sqlite3.connect(path) as file:
        assert [*file.execute("PRAGMA user_version"), *file.execute("SELECT sql FROM sqlite_master")] == before


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_what_waits_for_a_service_of_its_workspace_is_no_damage_and_is_counted_by_workspace(tmp_path, kind):
    async def keep(url: str) -> None:
        async with aclosing(await open_run_store(url)) as runs:
            for place, owner in (("T1:C:1.0", "one"), ("T1:C:2.0", "one"), ("T2:C:1.0", None)):
                await runs.admit(place, InboxEntry("a", "message", {}), "alpha")
                if owner:
                    await runs.claim(place, owner, 1000)

    with redis_server() as server:
        url = f"sqlite:{tmp_path}/kept.db" if kind == "sqlite" else server.url
        asyncio.run(keep(url))
        result, machine = run("doctor", "--store", url), run("doctor", "--store", url, "--json")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["T1", "2", "2", "2", "0", "2", "0"] in rows
    assert ["T2", "1", "1", "1", "0", "0", "1"] in rows
    assert "1 conversation of T2 waits for a service that serves this workspace." in result.output
    told = json.loads(machine.output)
    assert (told["unowned"], told["workspaces"]["T2"]["unowned"], told["workspaces"]["T1"]["leases"]) == (1, 1, 2)
