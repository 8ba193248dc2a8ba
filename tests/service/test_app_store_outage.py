"""What becomes of runs and of the service while their store is away, or is another one's."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from anthropic_server import AnthropicServer, Gate, message, text, tool_call
from redis_server import redis_server
from service_process import run_command
from structlog.testing import capture_logs

from orchestrator_interactive.interactions.stores import open_store
from service.config.config import InstanceConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces
from service.store.retry import RetryingStore, StoreRetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redis_server import RedisServer

HERE = "T:C:1.0"
# Of what a busy machine may add.
_SLOW_S = 3.0


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
async def model(monkeypatch) -> AsyncIterator[AnthropicServer]:
    """A model that says `fine` whatever it is asked."""
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.otherwise = lambda _: message(text("fine"))
        yield model


def env(model: AnthropicServer, redis: RedisServer) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": "sk-ant-of-the-test",
        "ANTHROPIC_BASE_URL": model.base_url,
        "AMPLIFIER_SLACK_STORE": redis.url,
    }


@asynccontextmanager
async def manager(server: RedisServer, root) -> AsyncIterator[InProcessSessionManager]:
    instance = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"))
    async with aclosing(await open_store(server.url)) as store:
        patient, workspaces = RetryingStore(store, StoreRetryPolicy()), Workspaces(WorkspaceConfig(root=root))
        async with InProcessSessionManager({"alpha": instance}, "provider-anthropic", workspaces, patient) as sessions:
            yield sessions


async def test_a_run_stands_still_while_the_store_is_away_and_goes_on_when_it_is_back(model, redis, tmp_path):
    gate = Gate()
    model.reply(gate, tool_call("list_files"))
    with capture_logs() as lines:
        async with manager(redis, tmp_path) as sessions:
            run = asyncio.create_task(sessions.execute("alpha", HERE, "look", message_id=HERE, fence=1))
            await gate.reached.wait()
            redis.kill()
            gate.open()
            done, _ = await asyncio.wait([run], timeout=2)
            assert not done
            assert len(model.requests) == 1, "nothing is asked before the log has what was said"
            redis.start()
            async with asyncio.timeout(20):
                assert await run == "fine"
            assert await sessions.delivered("alpha", HERE, [HERE], fence=1) == {HERE}
    assert [line["event"] for line in lines if line["event"].startswith("store.")] == [
        "store.unavailable",
        "store.available",
    ]
    assert len(model.requests) == 2


async def test_a_run_that_waits_for_the_store_can_be_stopped(model, redis, tmp_path):
    gate = Gate()
    model.reply(gate, tool_call("list_files"))
    async with manager(redis, tmp_path) as sessions:
        run = asyncio.create_task(sessions.execute("alpha", HERE, "look", fence=1))
        await gate.reached.wait()
        redis.kill()
        gate.open()
        done, _ = await asyncio.wait([run], timeout=0.5)
        assert not done
        assert sessions.stop("alpha", HERE)
        async with asyncio.timeout(10):
            await run
        waiting = asyncio.create_task(sessions.execute("alpha", HERE, "again", fence=1))  # in its set-up
        await asyncio.sleep(0.2)
        assert sessions.stop("alpha", HERE)
        async with asyncio.timeout(10):
            assert await waiting == ""


@pytest.mark.parametrize("trouble", ["gone", "hangs"])
async def test_what_is_written_while_the_store_is_away_is_answered_once_when_it_is_back(
    slack, stage, model, redis, trouble
):
    model.reply(text("the first"))
    async with stage.serving(**env(model, redis)) as service:
        await service.says("service.ready")
        ana = slack.as_person("ana")
        root = await ana.say("general", "@alpha look")
        await slack.until(lambda _: stage.found(root, "the first"), 30)
        if trouble == "gone":
            redis.kill()
        else:
            os.kill(redis.pid, signal.SIGSTOP)
        later = await ana.say("general", "and now?", thread=root)
        await service.says("store.unavailable")
        if trouble == "gone":
            redis.start()
        else:
            os.kill(redis.pid, signal.SIGCONT)
        await slack.until(lambda _: stage.found(root, "fine"), 30)
        await service.says("store.available")
        await slack.until(lambda ws: not ws.message("general", later).reacted("hourglass_flowing_sand"), 30)
        assert await service.ended(signal.SIGTERM) == 0
    assert stage.said(root) == ["the first", "fine"]
    assert "Traceback" not in service.output
    assert (await run_command("doctor", "--store", redis.url)).code == 0


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "frozen"])
async def test_a_service_whose_store_is_away_ends_in_time_and_well(  # noqa: PLR0917 - fixtures
    slack, stage, model, redis, tmp_path, is_gone
):
    gate = Gate()
    model.reply(gate, tool_call("list_files"))
    config = tmp_path / "config.yaml"
    config.write_text("shutdown_grace_s: 2")
    async with stage.serving("--config", str(config), **env(model, redis)) as service:
        await service.says("service.ready")
        await slack.as_person("ana").say("general", "@alpha look")
        await gate.reached.wait()
        if is_gone:
            redis.kill()
            await service.says("store.unavailable")
        else:
            os.kill(redis.pid, signal.SIGSTOP)
        gate.open()
        began = asyncio.get_running_loop().time()
        assert await service.ended(signal.SIGTERM, within_s=20) == 0
        assert asyncio.get_running_loop().time() - began < 2 + _SLOW_S
    assert "Traceback" not in service.output


async def test_a_second_service_over_the_same_file_is_refused_and_the_first_one_goes_on(slack, stage, tmp_path):
    url = f"sqlite:{tmp_path}/kept.db"
    async with stage.serving(AMPLIFIER_SLACK_STORE=url) as first:
        await first.says("service.ready")
        async with stage.serving(AMPLIFIER_SLACK_STORE=url) as second:
            assert await second.ended(within_s=30) == 2
        assert "Another service uses" in second.output
        ts = await slack.as_person("ana").say("general", "@alpha hello")
        await slack.until(lambda _: stage.found(ts, "offline demo"), 30)
        assert await first.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "gone"])
async def test_a_service_whose_file_is_not_there_any_more_ends_and_says_so(slack, stage, tmp_path, is_replaced):
    path = tmp_path / "kept.db"
    async with stage.serving(AMPLIFIER_SLACK_STORE=f"sqlite:{path}") as service:
        await service.says("service.ready")
        if is_replaced:
            (tmp_path / "other.db").write_bytes(path.read_bytes())
            (tmp_path / "other.db").replace(path)
        else:
            path.unlink()
        await slack.as_person("ana").say("general", "@alpha look")
        assert await service.ended(None, within_s=20) == 2
    assert "Error: The conversation log" in service.output
    assert "was removed or replaced while it was open: nothing is saved. Restart the process." in service.output
    assert "ExceptionGroup" not in service.output


async def test_what_is_written_while_the_disk_of_the_store_is_full_is_answered_when_there_is_room(
    slack, stage, tmp_path
):
    config = tmp_path / "config.yaml"
    config.write_text(
        "store: sqlite:kept.db\ninstances: {alpha: {persona: {name: Alpha, emoji: ':owl:'}, "
        "providers: [{module: provider-demo, config: {think_s: 0, word_s: 0}}]}}"
    )
    async with stage.serving("--config", str(config)) as service:
        await service.says("service.ready")
        _, hard = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, hard))  # no file can grow, as on a full disk
        ts = await slack.as_person("ana").say("general", "@alpha hello")
        await service.says("store.unavailable")
        assert stage.said(ts) == []
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        await service.says("store.available")
        await slack.until(lambda _: len(stage.said(ts)) == 1)
        assert "Traceback" not in service.output
