"""Workers, from the model's call to their report in the thread and in the next prompt, over kills and stops."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from contextlib import aclosing

import pytest
from anthropic_server import Gate, text, tool_call
from model_scripts import Scripts, TestThread, told

from connector.setup import manifest
from local_slack import LocalSlack
from orchestrator_interactive.interactions.feedback import feedback, latest
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.stores import open_store

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools:
      - {{module: tool-filesystem}}
      - {{module: tool-delegate}}
      - {{module: tool-dispatch-worker}}
      - {{module: tool-ask-user}}
    hooks: [{hooks}]
    {policy}
    agents:
      researcher: {{description: Finds sources., instructions: You research.}}
      writer: {{description: Writes., instructions: You write.}}
workspace: {{root: files}}
store: "{store}"
lease_s: 2
"""


@pytest.fixture
async def slack():
    async with LocalSlack(manifest=manifest(["Alpha"], command="/alpha")) as slack:
        yield slack


@pytest.fixture
def serve(environment, model_env, config_file, url):
    """Run the service; `hooks` and `policy` are those of its agent."""

    def serve(hooks="", policy=""):
        path = str(config_file(FILE.format(store=url, hooks=hooks, policy=policy)))
        return environment.serving("--config", path, **model_env)

    return serve


@pytest.fixture
def scripts(model):
    return Scripts(model)


@pytest.fixture
def thread(slack, environment):
    return TestThread(slack, environment)


def dispatch(task="find A", **more):
    return tool_call("dispatch_worker", {"task": task, "title": "Find A", "agent": "researcher", **more})


async def begun(thread):
    """Let the agent dispatch a worker; return the worker's id once its status message is there."""
    status = await thread.until_said("Find A (w")
    return re.search(r"\((w[0-9a-f]{6})\)", status.text)[1]


async def test_a_call_of_a_worker_waits_for_the_person_of_the_thread(serve, thread, scripts, tmp_path):
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [tool_call("write_file", {"path": "a.md", "content": "blue"})], [text("Written.")])
    async with serve("hooks-approval") as service:
        await thread.begin(service)
        asked = await thread.until_said("Allow write_file?")
        await thread.say("!approvals")
        await thread.until_whispered("Allow write_file?")
        assert not list(tmp_path.rglob("a.md"))
        await thread.ana.click("general", asked.ts, "request_choose_0")
        await thread.until_said("): Written.")
        (written,) = tmp_path.rglob("a.md")
        assert written.read_text() == "blue"
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_question_of_a_worker_says_how_to_answer_it(serve, thread, scripts):
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [tool_call("ask_user", {"question": "Which colour?"})], [text("A is blue.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("A worker is at it.")
        worker = await begun(thread)
        await thread.until_shown("Which colour?", f"Find A ({worker}) asks", f"or write `@{worker} …`")
        await thread.say(f"@{worker} blue")
        await thread.until_said("): A is blue.")
        await thread.until_shown("Which colour?", "Answered in the thread")
        assert "They answered with a message, which follows." in json.dumps(scripts.asked("research")[-1])
        assert "blue" in told(scripts.asked("research")[-1])
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_rewind_names_the_workers_that_it_leaves_behind(serve, thread, scripts):
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("A worker is at it.")
        await thread.say("!rewind")
        await thread.until_said("Its workers continue: Find A.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_worker_reports_in_the_thread_and_in_the_next_prompt(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [gate, text("A is blue.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("A worker is at it.")
        worker = await begun(thread)
        assert scripts.asked("lead")[-1].get("tool_choice") == {"type": "none"}
        gate.open()
        await thread.until_said(f"Find A ({worker}): A is blue.")
        await thread.say("thanks. which colour?")
        await thread.answered()
        said = json.dumps(scripts.asked("lead")[-1]["messages"])
        assert said.count("A is blue.") == 1
        assert f"Find A ({worker}) has ended: success." in said
        await thread.say("and again?")
        await thread.slack.until(lambda _: thread.environment.said(thread.root).count("fine") == 2)
        assert json.dumps(scripts.asked("lead")[-1]["messages"]).count("A is blue.") == 1
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_sub_agent_dispatches_a_worker_of_its_own_also_by_a_call_with_the_same_id(serve, thread, scripts):
    order = {"title": "Write", "agent": "writer"}
    delegated = tool_call("delegate", {"agent": "researcher", "instruction": "find A"})
    scripts.of("lead", [tool_call("dispatch_worker", {"task": "write A", **order}, call_id="call_1"), delegated])
    scripts.of("research", [tool_call("dispatch_worker", {"task": "write B", **order}, call_id="call_1")])
    async with serve() as service:
        await thread.begin(service)
        await thread.slack.until(lambda _: len(scripts.asked("write")) == 2)
        assert {told(body).partition("write ")[2][0] for body in scripts.asked("write")} == {"A", "B"}
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_worker_survives_a_kill_and_reports_once(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [tool_call("write_file", {"path": "a.md", "content": "blue"})], [gate])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("A worker is at it.")
        await gate.reached.wait()
        await service.ended(signal.SIGKILL)
    gate.open()
    scripts.of("research", [text("A is blue.")])
    async with serve() as service:
        await thread.until_said("A is blue.")
        await thread.say("what is it?")
        await thread.answered()
        said = json.dumps(scripts.asked("lead")[-1]["messages"])
        assert said.count("A is blue.") == 1
        assert sum("A is blue." in each for each in thread.environment.said(thread.root)) == 1
        assert sum("find A" in told(body) for body in scripts.asked("research")) == 1
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_message_to_a_worker_is_read_by_it_alone(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [gate, text("A is blue.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("A worker is at it.")
        worker = await begun(thread)
        await gate.reached.wait()
        said = await thread.say(f"@{worker} also check 2024")
        await thread.until_marked(said, "incoming_envelope")
        gate.open()
        await thread.until_marked(said, "eyes")
        await thread.until_said(f"Find A ({worker}): fine")
        assert "also check 2024" in told(scripts.asked("research")[-1])
        await thread.say(f"@{worker} and 2025")
        await thread.slack.until(lambda _: sum("): fine" in m for m in thread.environment.said(thread.root)) == 2)
        assert not any("also check" in json.dumps(body["messages"]) for body in scripts.asked("lead"))
        assert await service.ended(signal.SIGTERM) == 0


async def test_its_author_withdraws_a_message_to_a_worker_from_a_process_that_did_not_admit_it(serve, thread, scripts):
    gate, policy, ben = Gate(), "steer: owner", thread.slack.as_person("ben")
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [gate], [gate, text("A is blue.")])
    async with serve(policy=policy) as service:
        await thread.begin(service)
        await thread.until_said("A worker is at it.")
        worker = await begun(thread)
        await gate.reached.wait()
        said = await ben.say("general", f"@alpha @{worker} also check 2024", thread=thread.root)
        await thread.until_marked(said, "incoming_envelope")
        await service.ended(signal.SIGKILL)
    async with serve(policy=policy) as service:
        await service.says("run.taken_over")
        await thread.slack.until(lambda ws: ws.bot_online)
        await ben.react("general", said, "x")
        await thread.until_said("Withdrawn")
        gate.open()
        await thread.until_said("): A is blue.")
        assert await service.ended(signal.SIGTERM) == 0
    assert not any("also check" in json.dumps(body["messages"]) for body in scripts.model.bodies)


async def test_the_owner_of_a_thread_lets_another_person_steer_its_worker(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [gate, text("A is blue.")])
    async with serve(policy="steer: owner\n    consent: ask") as service:
        await thread.begin(service)
        await thread.until_said("A worker is at it.")
        worker = await begun(thread)
        await gate.reached.wait()
        ben = thread.slack.as_person("ben")
        await ben.say("general", f"@alpha @{worker} also check 2024", thread=thread.root)
        asked = await thread.until_said("Let Ben steer this run?")
        await thread.ana.click("general", asked.ts, "steer_allow")
        await thread.until_said("Ana lets Ben steer this run.")
        gate.open()
        await thread.until_said(f"Find A ({worker}): fine")
        assert "while you were working" in told(scripts.asked("research")[-1])
        assert "also check 2024" in told(scripts.asked("research")[-1])
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_report_is_rated_in_the_log_of_its_worker_and_neither_runs_again_nor_forks(serve, thread, scripts, url):
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [text("A is blue.")])
    async with serve() as service:
        await thread.begin(service)
        report = await thread.until_said("): A is blue.")
        await thread.until_said("A worker is at it.")
        worker = await begun(thread)
        await thread.ana.react("general", report.ts, "repeat")
        await thread.until_whispered(f"I cannot run a worker's task again. Write `@{worker} …`")
        await thread.ana.shortcut("fork", "general", report.ts)
        await thread.until_said(f"I cannot fork a worker's conversation. Write `@{worker} …`")
        await thread.ana.react("general", report.ts, "-1")
        key = Key(f"{thread.slack.team_id}:{thread.channel}:{thread.root}:{worker}", "alpha")
        async with aclosing(await open_store(url)) as logs:
            while not (found := [each async for each in feedback(logs, key)]):  # noqa: ASYNC110 - until it is stored
                await asyncio.sleep(0.05)
        (rating,) = latest(found)
        assert (rating.answer, rating.reward) == (f"{thread.slack.team_id}:{thread.channel}:{report.ts}", -1)
        assert rating.ref.startswith(f"{key.conversation_id}/alpha/")
        assert await service.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize("how", ["command", "reaction", "word", "button"])
async def test_every_stop_reaches_a_worker(serve, thread, scripts, how):
    gate = Gate()
    scripts.of("lead", [dispatch()], [text("A worker is at it.")])
    scripts.of("research", [gate, text("too late")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("A worker is at it.")
        worker = await begun(thread)
        await gate.reached.wait()
        request = scripts.model.requests[-1]
        status = await thread.until_said(f"Find A ({worker})")
        match how:
            case "command":
                await thread.say(f"!worker stop {worker}")
            case "reaction":
                await thread.ana.react("general", status.ts, "x")
            case "word":
                await thread.say("stop")
            case "button":
                await thread.ana.click("general", status.ts, "stop")
        await request.ended.wait()
        assert request.left
        await thread.until_said(f"🛠️ Find A ({worker}): 🛑 Stopped by Ana.")
        await thread.say("!workers")
        await thread.until_whispered(f"`{worker}` (researcher) Find A: cancelled after 0 min.")
        await thread.say("!worker stop all")
        await thread.until_whispered("No worker is at work here.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_stop_of_the_run_reaches_its_workers_and_a_time_limit_ends_one(serve, thread, scripts):
    gate, waiting = Gate(), Gate()
    scripts.of("lead", [dispatch(), dispatch("find B", title="Find B", minutes=0.01)], [waiting, text("late")])
    scripts.of("research", [gate], [gate])
    async with serve() as service:
        await thread.begin(service)
        await waiting.reached.wait()
        await thread.until_said("🛑 Stopped by its time limit.")
        await thread.until_said("Find A (w")
        await thread.say("stop")
        await thread.slack.until(
            lambda _: sum("🛑 Stopped by Ana." in each for each in thread.environment.said(thread.root)) == 2
        )
        assert await service.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize("is_at_work", [False, True])
async def test_a_stop_reaches_a_worker_whose_parent_worker_has_ended(serve, thread, scripts, is_at_work):
    gate, lead = Gate(), Gate()
    after = [lead, text("late")] if is_at_work else [text("A worker is at it.")]
    scripts.of("lead", [dispatch()], after)
    scripts.of("research", [dispatch("write B", agent="writer", title="Write B")], [text("I have handed it over.")])
    scripts.of("write", [gate, text("late")])
    async with serve() as service:
        await thread.begin(service)
        await gate.reached.wait()
        await thread.until_said("): I have handed it over.")
        await (lead.reached.wait() if is_at_work else thread.until_said("A worker is at it."))
        await thread.say("stop")
        await thread.until_said("): 🛑 Stopped by Ana.")
        if not is_at_work:
            await thread.until_said("🛑 I am stopping 1 worker.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_the_time_limit_of_a_worker_stops_the_workers_that_it_dispatched(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [dispatch(minutes=0.05)], [text("A worker is at it.")])
    scripts.of("research", [dispatch("write B", agent="writer", title="Write B")], [gate, text("late")])
    scripts.of("write", [gate, text("late")])
    async with serve() as service:
        await thread.begin(service)
        await thread.slack.until(
            lambda _: sum("🛑 Stopped by its time limit." in each for each in thread.environment.said(thread.root)) == 2
        )
        assert await service.ended(signal.SIGTERM) == 0
