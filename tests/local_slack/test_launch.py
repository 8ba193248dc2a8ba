"""Apps that do not set the address of Slack's API."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCH = (sys.executable, "-m", "local_slack.launch")
APP = str(Path(__file__).with_name("assistant_app.py"))


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_an_assistant_by_bolt_follows_the_channel_that_a_person_sees(slack, ana, form):
    app = await asyncio.create_subprocess_exec(*LAUNCH, APP, form, env={**os.environ, **slack.variables})
    try:
        await slack.until(lambda workspace: workspace.bot_online)
        dm = await ana.open_dm("alpha")
        await ana.open_thread("general")
        await slack.until(lambda workspace: len(workspace.messages(dm)) == 2)
        root = slack.workspace.messages(dm)[0].ts
        prompts = await slack.until(
            lambda workspace: workspace.session(dm, root) and workspace.session(dm, root).prompts
        )
        assert prompts == (("What can you do?", "What can you do?"),)
        await ana.say(dm, "Where am I?", thread=root)
        await slack.until(lambda workspace: workspace.thread(dm, root)[-1].text == "You come from <#C0GENERAL>.")
        await ana.open_thread("random", thread=root)
        await slack.until(lambda workspace: "C0RANDOM" in str(workspace.thread(dm, root)[1].metadata))
        await ana.say(dm, "And now?", thread=root)
        await slack.until(lambda workspace: workspace.thread(dm, root)[-1].text == "You come from <#C0RANDOM>.")
        assert slack.workspace.session(dm, root).title == "And now?"
    finally:
        app.terminate()
        await app.wait()


@pytest.mark.parametrize("arguments", [(), ("app.py",)])
def test_a_launch_without_an_app_or_an_address_says_how_to_call_it(arguments):
    variables = {name: value for name, value in os.environ.items() if name != "SLACK_API_URL"}
    ended = subprocess.run([*LAUNCH, *arguments], env=variables, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    assert ended.returncode == 1
    assert ended.stderr.startswith("Usage: python -m local_slack -- python -m local_slack.launch")
