"""A process that ends while many runs of one person wait for a slot."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from redis_server import redis_server
from slack_environment import SlackEnvironment

from local_slack import LocalSlack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANY = 12
CHANNELS = [f"c{number}" for number in range(MANY)]
GRACE_S = 4
CONFIG = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    providers: [{{module: provider-demo, config: {{think_s: {think_s}, word_s: 0}}}}]
limits: {{runs_per_person: {per_person}}}
lease_s: 2
shutdown_grace_s: {grace_s}
"""


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        yield f"sqlite:{tmp_path}/kept.db" if request.param == "sqlite" else stack.enter_context(redis_server()).url


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
async def test_runs_that_wait_at_the_end_of_the_process_are_answered_once_by_the_next(store, tmp_path, number):
    config = tmp_path / "agents.yaml"
    async with LocalSlack(channels=CHANNELS) as slack:
        stage, ana = SlackEnvironment.of(slack, tmp_path), slack.as_person("ana")
        config.write_text(CONFIG.format(think_s=60, per_person=2, grace_s=GRACE_S))
        async with stage.serving("--config", str(config), AMPLIFIER_SLACK_STORE=store) as service:
            await service.says("service.ready")
            roots = [await ana.say(channel, f"@alpha number {at}") for at, channel in enumerate(CHANNELS)]

            def parked() -> int:
                messages = map(slack.workspace.message, CHANNELS, roots)
                return sum(message.reacted("incoming_envelope") for message in messages if message is not None)

            await slack.until(lambda _: parked() == MANY - 7, 30)
            assert service.output.count("run.started") == 7, "two active and five waiting with a status"
            assert await service.ended(number, within_s=GRACE_S + 1) == (0 if number == signal.SIGTERM else -number)
            assert "not_handed_over" not in service.output
        config.write_text(CONFIG.format(think_s=0, per_person=10, grace_s=GRACE_S))
        async with stage.serving("--config", str(config), AMPLIFIER_SLACK_STORE=store):

            def said(at: int) -> list[str]:
                thread = slack.workspace.thread(slack.channel(CHANNELS[at]).id, roots[at])
                return [m.text for m in thread if m.by_bot]

            def is_answered(at: int) -> bool:
                return [f"number {at}”" in text for text in said(at)] == [True]

            await slack.until(lambda _: all(map(is_answered, range(MANY))), 50)


async def test_a_process_with_many_waiting_runs_ends_within_its_grace_period(store, tmp_path):
    config = tmp_path / "agents.yaml"
    config.write_text(CONFIG.format(think_s=60, per_person=10, grace_s=GRACE_S))
    async with LocalSlack() as slack:
        ana = slack.as_person("ana")
        async with SlackEnvironment.of(slack, tmp_path).serving(
            "--config", str(config), AMPLIFIER_SLACK_STORE=store
        ) as service:
            await service.says("service.ready")
            await asyncio.gather(*(ana.say("general", f"@alpha number {at}") for at in range(150)))
            await slack.until(lambda _: not slack.socket_mode.delivery.outstanding, 90)
            assert await service.ended(signal.SIGTERM, within_s=GRACE_S + 1) == 0
        assert service.output.count("run.started") == 15
        assert "not_handed_over" not in service.output
        assert "Traceback" not in service.output
