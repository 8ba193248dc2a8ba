"""`/healthz` and `/readyz` of a service in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import socket
import time

from anthropic_server import Gate, text
from observed import becomes, health
from redis_server import redis_server
from service_process import free_address, serving

from service.observe.server import Health


async def test_the_service_is_ready_unless_slack_or_the_store_is_away_or_it_shuts_down(
    slack, environment, model, model_env, free_port
):
    gate = Gate()
    model.reply(text("I begin. "), gate)
    with redis_server() as redis:
        env = {**model_env, "AMPLIFIER_SLACK_STORE": redis.url, "AMPLIFIER_SLACK_OBSERVE": f"127.0.0.1:{free_port}"}
        held = environment.hold("apps.connections.open")
        async with environment.serving(**env) as service:
            await asyncio.wait_for(held.reached.wait(), 20)
            assert (await health(free_port))[1]["service"] == "The service is starting."
            held.set()
            await service.says("service.ready")
            await becomes(free_port, 200)
            await slack.until(lambda _: slack.socket_mode.connections == 2, 20)
            holds = [environment.hold("apps.connections.open") for _ in range(2)]
            slack.socket_mode.drop()
            assert (
                await becomes(free_port, 503, "transport") == "No connection to Slack is open; the log has the reason."
            )
            for hold in holds:
                hold.set()
            await becomes(free_port, 200)
            redis.kill()
            assert (await becomes(free_port, 503, "store")).startswith("The store does not answer")
            assert await health(free_port, "/healthz") == (200, {})
            redis.start()
            await becomes(free_port, 200)
            asked = await slack.as_person("ana").say("general", "@alpha look")
            await slack.until(lambda _: environment.said(asked), 20)
            redis.ask("CONFIG", "SET", "maxmemory", "1")  # it still answers reads
            await slack.as_person("ana").say("general", "look again", thread=asked)
            assert "does not accept writes" in await becomes(free_port, 503, "store")
            redis.ask("CONFIG", "SET", "maxmemory", "0")
            await becomes(free_port, 200)
            held = environment.hold("chat.postMessage")
            gate.open()
            await asyncio.wait_for(held.reached.wait(), 20)
            service.process.send_signal(signal.SIGTERM)
            assert await becomes(free_port, 503, "service") == "The service is shutting down."
            held.set()


async def test_a_service_is_ready_when_the_process_of_its_agents_answers(
    environment, model_env, free_port, config_file
):
    address = free_address()
    config = config_file("instances: {alpha: {persona: {name: Alpha, emoji: ':owl:'}}}\nstore: sqlite:kept.db\n")
    env = {**model_env, "AMPLIFIER_SLACK_OBSERVE": f"127.0.0.1:{free_port}"}
    env["AMPLIFIER_SLACK_SESSIONS"] = f"grpc://{address}"
    async with serving({**environment.env, **env}, "--config", str(config)) as service:
        await service.says("service.ready")
        assert "sessions serve" in await becomes(free_port, 503, "agents")
        command = ("sessions", "serve", "--listen", address)
        async with serving({**environment.env, **model_env}, "--config", str(config), command=command) as agents:
            await agents.says("sessions.ready")
            await becomes(free_port, 200)
        await becomes(free_port, 503, "agents")


async def test_a_used_address_ends_the_command_with_a_sentence(slack, environment):
    with socket.create_server(("127.0.0.1", 0)) as used:
        listen = f"127.0.0.1:{used.getsockname()[1]}"
        async with environment.serving(AMPLIFIER_SLACK_OBSERVE=listen) as service:
            assert await service.ended(within_s=20) == 2
    assert "observe.listen: cannot listen on 127.0.0.1 port" in service.output
    assert "another program uses it" in service.output


async def test_low_disk_space_and_a_blocked_event_loop_are_not_ready():
    health = Health(100, {"store": 99, "workspaces": 500})
    watching = asyncio.create_task(health.watch_loop())
    await asyncio.sleep(0)
    time.sleep(1.6)  # noqa: ASYNC251 - as a tool that blocks the loop
    await asyncio.sleep(0.01)
    ready, alive = await health.ready(), health.alive()
    watching.cancel()
    assert ready["disk"].says == "Free disk space is below 100 MB: store has 99 MB."
    assert [name for name, check in ready.items() if check.ok] == []
    assert alive["event_loop"].ok
    assert health.loop_lag_s > 1
