"""Schedules of a whole service: by command, tool and Home tab, over kills and replicas."""

from __future__ import annotations

import json
import re
import signal
from datetime import UTC, datetime, timedelta

import pytest
from anthropic_server import Gate, text, tool_call
from model_scripts import Scripts, TestThread
from service_process import run_command

from connector.setup import manifest
from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse, LocalSlack, SlowResponse

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools: [{{module: tool-schedule}}]
workspace: {{root: files}}
store: "{store}"
"""
UNSCHEDULE = "home_unschedule"


@pytest.fixture
async def slack():
    async with LocalSlack(manifest=manifest(["Alpha"], command="/alpha"), zones={"ana": "Europe/Berlin"}) as slack:
        yield slack


@pytest.fixture
def serve(environment, model_env, config_file, url):
    path = str(config_file(FILE.format(store=url)))
    return lambda: environment.serving("--config", path, **model_env)


@pytest.fixture
def scripts(model):
    return Scripts(model)


@pytest.fixture
def thread(slack, environment):
    return TestThread(slack, environment)


def soon(seconds=2):
    return f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}Z"


def read(scripts, words):
    """Count the model's requests whose last message has these words."""
    return sum(words in json.dumps(body["messages"][-1]) for body in scripts.asked("lead"))


async def test_a_command_schedules_a_message_that_begins_a_run_once(serve, thread, scripts):
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        scripts.of("lead", [text("I looked again.")])
        await thread.say(f"!schedule {soon()} look here again")
        await thread.until_said("removes it.")
        fired = await thread.until_said("⏰ Scheduled by Ana (s")
        assert "look here again" in fired.text
        await thread.until_said("I looked again.")
        await thread.say("!schedule")
        await thread.until_said("There are no schedules here.")
        assert read(scripts, "[Scheduled message s") == 1
        await thread.ana.react("general", (await thread.until_said("I looked again.")).ts, "repeat")
        await thread.until_whispered("I posted that message for a person and cannot run it again.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_schedule_whose_time_zone_slack_does_not_tell_now_is_not_made(serve, thread, environment):
    async with serve() as service:
        await service.says("service.ready")
        await thread.slack.until(lambda ws: ws.bot_online)
        profile = environment.hold("users.info")
        await thread.ana.command("general", "/alpha schedule 0 9 * * 1 write the news")
        await thread.until_whispered("Slack does not tell me your time zone just now.")
        profile.set()
        await thread.ana.command("general", "/alpha schedule 0 9 * * 1 write the news")
        await thread.until_whispered("at 09:00 on Monday (Europe/Berlin)")
        assert await service.ended(signal.SIGTERM) == 0


async def test_the_announcement_of_a_scheduled_message_stands_above_the_status_of_its_run(serve, thread, scripts):
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        scripts.of("lead", [gate := Gate(), text("I looked again.")])
        await thread.say(f"!schedule {soon()} look here again")
        await thread.until_said("removes it.")
        thread.slack.faults.next("chat.postMessage", DropBeforeCall())
        status = await thread.until_said("⚙️")
        announced = await thread.until_said("⏰ Scheduled by Ana (s")
        assert float(announced.ts) < float(status.ts)
        gate.open()
        await thread.until_said("I looked again.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_schedule_fires_once_over_a_kill_in_the_thread_and_in_the_channel(serve, thread, scripts, environment):
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        await thread.say(f"!schedule {soon(4)} look here again")
        await thread.until_said("removes it.")
        await thread.ana.command("general", f"/alpha schedule {soon(4)} write the news")
        await thread.until_whispered("removes it.")
        await service.says("schedule.fired")
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await thread.until_said("⏰ Scheduled by Ana (s")
        roots = [each for each in thread.slack.workspace.messages(thread.channel) if each.thread_ts is None]
        news = await thread.slack.until(
            lambda ws: next((each.ts for each in ws.messages(thread.channel) if "write the news" in each.text), None)
        )
        await thread.slack.until(lambda _: environment.said(news)[-1:] == ["fine"])
        await thread.answered()
        assert [read(scripts, words) for words in ("look here again", "write the news")] == [1, 1]
        assert sum("⏰ Scheduled" in each for each in environment.said(thread.root)) == 1
        assert sum("write the news" in each.text for each in roots) <= 1
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_thread_begins_once_however_much_is_written_before_the_next_process(serve, thread, environment):
    def roots():
        found = thread.slack.workspace.messages(thread.channel)
        return [each.ts for each in found if each.by_bot and "write the news" in each.text]

    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        await thread.ana.command("general", f"/alpha schedule {soon()} write the news")
        await thread.until_whispered("removes it.")
        thread.slack.faults.next("chat.postMessage", SlowResponse(60))
        (news,) = await thread.slack.until(lambda _: roots())
        await service.ended(signal.SIGKILL)
    for number in range(201):
        await thread.ana.say("general", f"message {number}")
    async with serve() as service:
        await thread.slack.until(lambda _: any(environment.said(each)[-1:] == ["fine"] for each in roots()))
        assert roots() == [news]
        assert await service.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize("url", ["redis"], indirect=True)
async def test_two_replicas_fire_a_schedule_once(serve, thread, scripts):
    async with serve() as one, serve() as two:
        await two.says("service.ready")
        await thread.begin(one)
        await thread.answered()
        await thread.say(f"!schedule {soon(6)} look here again")
        await thread.until_said("⏰ Scheduled by Ana (s")
        await thread.slack.until(lambda _: thread.environment.said(thread.root).count("fine") == 2)
        assert read(scripts, "look here again") == 1
        assert await one.ended(signal.SIGTERM) == 0
        assert await two.ended(signal.SIGTERM) == 0
    assert (one.output + two.output).count("schedule.fired") >= 1


async def test_the_agent_schedules_lists_and_removes_for_the_person(serve, thread, scripts):
    add = {"operation": "add", "text": "read the report", "when": "0 9 * * 1"}
    calls = [[tool_call("schedule", each)] for each in (add, {"operation": "list"})]
    scripts.of("lead", *calls, [text("Every Monday.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("Every Monday.")
        listed = json.dumps(scripts.asked("lead")[-1]["messages"][-1], ensure_ascii=False)
        assert "at 09:00 on Monday (Europe/Berlin)" in listed
        schedule_id = re.search(r"s[0-9a-f]{8}", listed)[0]
        scripts.of("lead", [tool_call("schedule", {"operation": "remove", "id": schedule_id})], [text("Gone.")])
        await thread.say("no longer, please")
        await thread.until_said("Gone.")
        await thread.say("!schedule")
        await thread.until_said("There are no schedules here.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_person_sees_and_revokes_their_schedules_in_the_home_tab(serve, thread):
    def shown(who):
        return json.dumps(who.home.content["blocks"], ensure_ascii=False) if who.home else ""

    ben = thread.slack.as_person("ben")
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        await thread.say("!schedule 0 9 * * 1 write the weekly summary")
        await thread.until_said("removes it.")
        await thread.ana.open_home("home")
        await thread.slack.until(lambda _: "write the weekly summary" in shown(thread.ana))
        await ben.open_home("home")
        await thread.slack.until(lambda _: "Agents" in shown(ben))
        assert "weekly" not in shown(ben)
        await thread.ana.click_home(UNSCHEDULE)
        await thread.slack.until(lambda _: "weekly" not in shown(thread.ana))
        await thread.say("!schedule")
        await thread.until_said("There are no schedules here.")
        assert await service.ended(signal.SIGTERM) == 0


@pytest.fixture
async def told(thread):
    """Return the texts of the direct messages of the agent to Ana."""
    direct = await thread.ana.open_dm("alpha")
    return lambda: [each.text for each in thread.slack.workspace.messages(direct) if each.by_bot]


async def test_a_schedule_of_a_closed_channel_is_reported_once_in_a_direct_message(serve, thread, told):
    slack = thread.slack
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        await thread.ana.command("random", f"/alpha schedule {soon()} R&amp;D")
        await slack.until(lambda ws: ws.whispers(slack.channel("random").id))
        slack.workspace.archive("random")
        slack.faults.next("chat.postMessage", DropAfterCall())
        await slack.until(lambda _: told())
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await thread.say("more")
        await slack.until(lambda _: thread.environment.said(thread.root).count("fine") == 2)
        assert await service.ended(signal.SIGTERM) == 0
    (text,) = told()
    assert "(“R&amp;D”) is suspended: I can no longer write in this channel." in text


async def test_the_person_reads_why_no_thread_begins_also_after_a_kill(serve, thread, told, environment):
    faults = thread.slack.faults
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        faults.next("chat.postMessage", ErrorResponse("is_archived"))
        opened = environment.hold("conversations.open")
        await thread.ana.command("general", "/alpha new look")
        await opened.reached.wait()
        await service.ended(signal.SIGKILL)
    opened.set()
    faults.next("chat.postMessage", ErrorResponse("is_archived"))
    faults.next("chat.postMessage", DropAfterCall())
    async with serve() as service:
        await thread.slack.until(lambda _: told())
        assert await service.ended(signal.SIGTERM) == 0
    (text,) = told()
    assert "the channel is archived" in text


async def test_without_access_a_schedule_is_suspended(environment, model_env, config_file, thread, sqlite_url):
    file = FILE.format(store=sqlite_url)
    path = str(config_file(file))
    async with environment.serving("--config", path, **model_env) as service:
        await thread.begin(service)
        await thread.answered()
        await thread.say(f"!schedule {soon(6)} look here again")
        said = await thread.until_said("removes it.")
        assert await service.ended(signal.SIGTERM) == 0
    schedule_id = re.search(r"s[0-9a-f]{8}", said.text)[0]
    config_file(f"{file}slack: {{users: [U0BEN]}}\n")
    async with environment.serving("--config", path, **model_env) as service:
        await thread.until_said("is suspended: this person no longer has access to me here.")
        assert await service.ended(signal.SIGTERM) == 0
    listed = await run_command("schedules", "list", "--store", sqlite_url)
    assert f"{schedule_id}  T0LOCAL:C0GENERAL" in listed.output
    assert "suspended" in listed.output
    assert (await run_command("schedules", "remove", schedule_id, "--store", sqlite_url)).code == 0
    again = await run_command("schedules", "remove", schedule_id, "--store", sqlite_url)
    assert again.code == 1
    assert "There is no schedule" in again.output
