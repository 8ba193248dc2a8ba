"""The memory of a channel: what agents and people keep, read, change, forget and export there, and nowhere else."""

from __future__ import annotations

import json
import signal

import pytest
from anthropic_server import text, tool_call
from model_scripts import Scripts, TestThread
from service_process import run_command

from connector.setup import manifest
from local_slack import LocalSlack

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools: [tool-memory]
channels:
  C0RANDOM: {{instructions: "Here, answer in French."}}
workspace: {{root: files}}
store: "{store}"
lease_s: 2
"""
FACT = "Releases are on Tuesdays."


@pytest.fixture
async def slack():
    async with LocalSlack(manifest=manifest(["Alpha"], command="/alpha")) as slack:
        yield slack


@pytest.fixture
def config(config_file, url):
    return str(config_file(FILE.format(store=url)))


@pytest.fixture
def serve(environment, model_env, config):
    return lambda: environment.serving("--config", config, **model_env)


@pytest.fixture
def scripts(model):
    return Scripts(model)


async def asked_in(slack, scripts, channel, words):
    """Begin a thread in a channel, and return the request to the model."""
    count = len(scripts.asked("lead"))
    root = await slack.as_person("ana").say(channel, words)
    place = slack.channel(channel).id
    await slack.until(lambda ws: any(each.text == "fine" for each in ws.thread(place, root)))
    (request,) = scripts.asked("lead")[count:]
    return json.dumps(request)


async def test_a_fact_is_read_in_later_threads_of_its_channel_and_nowhere_else(serve, slack, environment, scripts):
    thread = TestThread(slack, environment)
    scripts.of("lead", [tool_call("memory", {"operation": "add", "text": FACT})], [text("Noted.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("Noted.")
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await service.says("service.ready")
        for channel, has_read in (("general", True), ("random", False), ("general", True)):
            request = await asked_in(slack, scripts, channel, "@alpha when?")
            assert (FACT in request) is has_read
            assert ("answer in French" in request) is (channel == "random")
        assert await service.ended(signal.SIGTERM) == 0


async def test_people_list_change_forget_and_export_what_is_remembered(serve, slack, environment, url):
    thread = TestThread(slack, environment)
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        await thread.say("!memory")
        await thread.until_said("I remember nothing here.")
        await thread.say(f"!memory add {FACT} <!channel>")
        added = (await thread.until_said("Remembered as")).text
        fact_id = added.split("`")[1]
        assert "<!channel>" not in added
        await thread.say(f"!memory edit {fact_id} R&amp;D releases on *Mondays*.")
        await thread.until_said(f"Now `{fact_id}`: R&amp;D releases on *Mondays*.")
        await thread.say("!memory")
        await thread.until_said(f"• `{fact_id}` R&amp;D releases on *Mondays*. (by a person, ")
        await thread.say("!memory export")
        shared = await slack.until(
            lambda ws: next((m for m in ws.thread(thread.channel, thread.root) if m.body.files), None)
        )
        content = slack.workspace.file(shared.body.files[0].id).content
        assert json.loads(content)["text"] == "R&D releases on *Mondays*."
        await thread.say("!memory forget m000000")
        await thread.until_said("I remember nothing with the id 'm000000' here; `!memory` lists all.")
        await thread.say("!memory remember")
        await thread.until_said("Write `!memory`, `!memory add TEXT`")
        assert await service.ended(signal.SIGTERM) == 0
    whose = (thread.ana.person.id, "--store", url)
    assert "Mondays" in (await run_command("people", "export", *whose)).output
    assert (await run_command("people", "erase", *whose, "--yes")).code == 0
    assert "Mondays" not in (await run_command("people", "export", *whose)).output


async def test_direct_messages_have_a_memory_of_their_own(serve, slack, scripts):
    ana = slack.as_person("ana")
    async with serve() as service:
        await service.says("service.ready")
        await slack.until(lambda ws: ws.bot_online)
        direct = await ana.open_dm("alpha")
        await ana.dm("alpha", "!memory add My salary is a secret.")
        await slack.until(lambda ws: any("Remembered as" in each.text for each in ws.messages(direct)))
        assert "salary" not in await asked_in(slack, scripts, "general", "@alpha what do you know?")
        assert await service.ended(signal.SIGTERM) == 0
