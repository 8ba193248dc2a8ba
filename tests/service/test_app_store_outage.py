"""Runs and the service during an outage of their store."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from contextlib import aclosing, asynccontextmanager

import pytest
from anthropic_server import Gate, tool_call
from structlog.testing import capture_logs

from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.config.config import InstanceConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

HERE = "T:C:1.0"
# Tolerance for a busy machine.
SLOW_S = 3.0
INSTANCE = "alpha: {persona: {name: Alpha, emoji: ':owl:'}"


@pytest.fixture
def env(model_env, durable_redis):
    return {**model_env, "AMPLIFIER_SLACK_STORE": durable_redis.url}


@pytest.fixture
def outage(durable_redis):
    """Let the store be gone or hang; return a function that ends the outage."""

    def begin(kind):
        if kind == "gone":
            durable_redis.kill()
            return durable_redis.start
        os.kill(durable_redis.pid, signal.SIGSTOP)
        return lambda: os.kill(durable_redis.pid, signal.SIGCONT)

    return begin


@asynccontextmanager
async def manager(url, root):
    instance = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"))
    async with aclosing(await open_store(url)) as store:
        logs, workspaces = retrying(store, StoreRetryPolicy()), Workspaces(WorkspaceConfig(root=root))
        async with InProcessSessionManager({"alpha": instance}, "provider-anthropic", workspaces, logs) as sessions:
            yield sessions


async def test_a_run_waits_for_the_end_of_an_outage(model, durable_redis, tmp_path):
    gate = Gate()
    model.reply(gate, tool_call("list_files"))
    with capture_logs() as lines:
        async with manager(durable_redis.url, tmp_path) as sessions:
            run = asyncio.create_task(sessions.execute("alpha", HERE, "look", message_id=HERE, fence=1))
            await gate.reached.wait()
            durable_redis.kill()
            gate.open()
            done, _ = await asyncio.wait([run], timeout=2)
            assert not done
            assert len(model.requests) == 1, "a model call follows the commit of the answer before it"
            durable_redis.start()
            async with asyncio.timeout(20):
                assert await run == "fine"
            assert await sessions.delivered("alpha", HERE, [HERE], fence=1) == {HERE}
    assert [line["event"] for line in lines if line["event"].startswith("store.")] == [
        "store.unavailable",
        "store.available",
    ]
    assert len(model.requests) == 2


async def test_a_run_that_waits_for_the_store_can_be_stopped(model, durable_redis, tmp_path):
    gate = Gate()
    model.reply(gate, tool_call("list_files"))
    async with manager(durable_redis.url, tmp_path) as sessions:
        run = asyncio.create_task(sessions.execute("alpha", HERE, "look", fence=1))
        await gate.reached.wait()
        durable_redis.kill()
        gate.open()
        done, _ = await asyncio.wait([run], timeout=0.5)
        assert not done
        assert sessions.stop("alpha", HERE)
        async with asyncio.timeout(50):
            await run
        waiting = asyncio.create_task(sessions.execute("alpha", HERE, "again", fence=1))
        await asyncio.sleep(0.2)  # its set-up waits for the store
        assert sessions.stop("alpha", HERE)
        async with asyncio.timeout(50):
            assert await waiting == ""


@pytest.mark.parametrize("kind", ["gone", "hangs"])
async def test_a_service_ends_in_time_during_an_outage(  # noqa: PLR0917 - fixtures
    slack, environment, model, env, outage, config_file, kind
):
    gate = Gate()
    model.reply(gate, tool_call("list_files"))
    async with environment.serving("--config", str(config_file("shutdown_grace_s: 4")), **env) as service:
        await service.says("service.ready")
        await slack.as_person("ana").say("general", "@alpha look")
        await gate.reached.wait()
        outage(kind)
        if kind == "gone":
            await service.says("store.unavailable")
        gate.open()
        assert await service.ended(signal.SIGTERM, within_s=4 + SLOW_S) == 0
    assert "Traceback" not in service.output


async def test_a_second_service_over_the_same_file_is_refused(slack, environment, tmp_path):
    url = f"sqlite:{tmp_path}/kept.db"
    async with environment.serving(AMPLIFIER_SLACK_STORE=url) as first:
        await first.says("service.ready")
        async with environment.serving(AMPLIFIER_SLACK_STORE=url) as second:
            assert await second.ended(within_s=30) == 2
        assert "Another service uses" in second.output
        ts = await slack.as_person("ana").say("general", "@alpha hello")
        await slack.until(lambda _: environment.found(ts, "offline demo"), 30)
        assert await first.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "removed"])
async def test_a_service_ends_if_its_file_is_replaced_or_removed(slack, environment, tmp_path, is_replaced):
    path = tmp_path / "kept.db"
    async with environment.serving(AMPLIFIER_SLACK_STORE=f"sqlite:{path}") as service:
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


async def test_a_message_written_while_the_disk_is_full_is_answered_later(slack, environment, config_file):
    demo = "providers: [{module: provider-demo, config: {think_s: 0, word_s: 0}}]"
    config = config_file(f"store: sqlite:kept.db\ninstances: {{{INSTANCE}, {demo}}}}}")
    async with environment.serving("--config", str(config)) as service:
        await service.says("service.ready")
        _, hard = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, hard))  # no file can grow, as on a full disk
        ts = await slack.as_person("ana").say("general", "@alpha hello")
        await service.says("store.unavailable")
        assert environment.said(ts) == []
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        await service.says("store.available")
        await slack.until(lambda _: len(environment.said(ts)) == 1)
        assert "Traceback" not in service.output
