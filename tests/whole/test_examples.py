"""Each example serves a local Slack, without a key, and its agent answers."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis_server import redis_server
from service_process import run_command

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES)
async def test_the_agents_of_an_example_answer(environment, tmp_path, file):
    config = EXAMPLES / file
    names = re.findall(r"^  (\w+):\n    persona", config.read_text(), re.MULTILINE)
    slack = environment.slack
    with ExitStack() as opened:
        more = {}
        if "redis" in file:
            more["REDIS_URL"] = f"redis://127.0.0.1:{opened.enter_context(redis_server()).port}/0"
        async with environment.serving("--config", str(config), **more) as service:
            await service.says("service.ready")
            for name in names:
                ts = await slack.as_person("ana").say("general", f"@alpha {name}: hello")
                await slack.until(lambda _, ts=ts: environment.found(ts, "offline demo"), 30)
            assert await service.ended(signal.SIGTERM) == 0


async def test_the_tool_of_the_example_keeps_its_contract():
    validated = await run_command("module", "validate", str(EXAMPLES / "own_tool/tool_dice.py"))
    assert validated.code == 0, validated.output
