"""The Home tab of a service process: work, requests, rules and usage of a person, and the buttons there."""

from __future__ import annotations

import json
import signal
from itertools import count

import pytest
from anthropic_server import tool_call

from local_slack import ErrorResponse
from local_slack.delivery.delivery import Envelope

CONFIG = """\
instances:
  alpha:
    persona: {name: Alpha, emoji: ':owl:'}
    description: Plans <launches>.
    tools: [{module: tool-filesystem}, {module: tool-todo}, {module: tool-ask-user}]
    hooks:
      - module: hooks-approval
        config: {rules: [{tool: delete_file, level: ask-two, approvers: [U0ANA, U0BEN]}]}
slack: {users: [U0ANA, U0BEN]}
workspace: {root: files}
"""
PLAN = {"path": "plan.md", "content": "# Plan\n"}
ALLOW, ALWAYS, STOP, REVOKE = "request_choose_0", "request_always", "home_stop", "home_revoke"
_NUMBERS = count(1)


class Homes:
    """The Home tabs of people, and their clicks there."""

    def __init__(self, slack, environment):
        self.slack, self.environment = slack, environment
        self.ana, self.ben, self.chloe = (slack.as_person(name) for name in ("ana", "ben", "chloe"))

    async def shows(self, who, *parts, without=()):
        """Wait until a tab contains these parts and none of the others; return its blocks."""

        def shown(_):
            found = json.dumps([who.home.content["blocks"]], ensure_ascii=False) if who.home else ""
            return found and all(part in found for part in parts) and not any(part in found for part in without)

        try:
            await self.slack.until(shown)
        except TimeoutError as e:
            raise TimeoutError(f"The tab shows {who.home}.") from e
        return who.home.content["blocks"]

    async def open(self, who):
        await self.slack.until(lambda ws: ws.bot_online)
        await who.open_home("home")

    def forge(self, who, action_id, value):
        """Deliver a click on a button of a Home tab that no one was shown."""
        at = f"{1_795_000_000 + next(_NUMBERS)}.000000"
        action = {"type": "button", "action_id": action_id, "value": value, "action_ts": at}
        payload = {
            "type": "block_actions",
            "team": {"id": self.slack.team_id},
            "user": {"id": who.person.id, "team_id": self.slack.team_id},
            "container": {"type": "view", "view_id": "V0FORGED"},
            "actions": [action],
        }
        self.slack.socket_mode.delivery.offer(Envelope(f"forged-{at}", "interactive", payload))

    async def delivered(self):
        await self.slack.until(lambda _: not self.slack.socket_mode.delivery.outstanding)

    def published(self):
        return [each for each in self.slack.record if each.get("method") == "views.publish"]


@pytest.fixture
def homes(slack, environment):
    return Homes(slack, environment)


@pytest.fixture
def serve(environment, model_env, config_file):
    return lambda: environment.serving("--config", str(config_file(CONFIG)), **model_env)


async def test_a_new_person_is_welcomed(serve, homes):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        await homes.shows(
            homes.ana, "Welcome", "<@U0ALPHA>", "Plans &lt;launches&gt;.", "filesystem, todo", without=("Usage",)
        )
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_tab_follows_runs_and_counts_their_usage_once(serve, homes, model):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        await homes.shows(homes.ana, "Welcome")
        model.reply(tool_call("write_file", PLAN))
        root = await homes.ana.say("general", "@alpha plan &amp; do | *now*")
        await homes.shows(homes.ana, "At work", "waits for an answer", "plan &amp; do ¦ *now*")
        await homes.open(homes.ben)
        await homes.shows(homes.ben, "Welcome", without=("At work", "Waiting for an answer"))
        await homes.ana.click_home(ALLOW)
        await homes.slack.until(lambda _: homes.environment.said(root)[-1:] == ["fine"])
        await homes.shows(
            homes.ana,
            "Recent conversations",
            f"archives/C0GENERAL/p{root.replace('.', '')}|plan &amp; do ¦",
            "*Today:* 1 run,",
            without=("At work", "Waiting for an answer", "Welcome"),
        )
        assert await service.ended(signal.SIGTERM) == 0
    async with serve() as service:  # runs are kept beyond the process
        await service.says("service.ready")
        await homes.ana.say("general", "again", thread=root)
        await homes.shows(homes.ana, "*Today:* 2 runs,", "*This month:* 2 runs,")
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_run_that_a_kill_interrupts_counts_once_with_its_whole_usage(serve, homes, model):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        model.reply(tool_call("write_file", PLAN))
        await homes.ana.say("general", "@alpha plan it")
        await homes.shows(homes.ana, ALLOW)
        assert await service.ended(signal.SIGKILL) == -signal.SIGKILL
    async with serve() as service:
        await service.says("run.taken_over")
        await homes.slack.until(lambda ws: ws.bot_online)
        await homes.ana.click_home(ALLOW)
        await homes.shows(homes.ana, "*Today:* 1 run, 20 tokens read, 10 written", without=(ALLOW,))  # of two calls
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_request_is_answered_from_the_tab_of_those_who_may(serve, homes, model, tmp_path):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        model.reply(tool_call("write_file", PLAN))
        root = await homes.ana.say("general", "@alpha plan it")
        await homes.shows(homes.ana, "Allow write_file?", "+# Plan")
        question = await homes.slack.until(lambda _: homes.environment.found(root, "Allow write_file?"))
        await homes.open(homes.ben)
        await homes.shows(homes.ben, "Agents", without=("Allow write_file?",))
        await homes.ana.click("general", question.ts, ALLOW)
        await homes.shows(homes.ana, "Recent", without=("Allow write_file?",))
        assert (tmp_path / "files").exists()
        model.reply(tool_call("write_file", {"path": "long.md", "content": "a long line\n" * 300}))
        await homes.ana.say("general", "@alpha write much")
        blocks = await homes.shows(homes.ana, "It is long: read it in the thread")
        assert ALLOW not in json.dumps(blocks)
        assert await service.ended(signal.SIGTERM) == 0


async def test_the_tabs_of_two_who_may_allow_it_follow_the_votes_and_the_end_of_the_run(serve, homes, model):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        await homes.open(homes.ben)
        model.reply(tool_call("delete_file", {"path": "plan.md"}))
        await homes.ana.say("general", "@alpha delete it")
        for who in (homes.ana, homes.ben):
            await homes.shows(who, "Allow delete_file?", "0 of 2 have allowed it")
        await homes.ana.click_home(ALLOW)
        for who in (homes.ana, homes.ben):
            await homes.shows(who, "1 of 2 have allowed it")
        await homes.ana.click_home(STOP)
        for who in (homes.ana, homes.ben):
            await homes.shows(who, "Agents", without=("Allow delete_file?",))
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_question_with_several_choices_is_answered_from_the_tab(serve, homes, model):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        days = {"question": "Which days?", "options": ["Mo", "Tu", "We"], "multiple": True}
        model.reply(tool_call("ask_user", days))
        root = await homes.ana.say("general", "@alpha plan it")
        await homes.shows(homes.ana, "Which days?")
        await homes.ana.click_home("request_send", request_options=["0", "2"])
        await homes.slack.until(lambda _: homes.environment.said(root)[-1:] == ["fine"])
        assert "Ana answered: Mo, We" in json.dumps(model.bodies[-1]["messages"])
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_run_is_stopped_from_the_tab(serve, homes, model):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        model.reply(tool_call("write_file", PLAN))
        root = await homes.ana.say("general", "@alpha plan it")
        blocks = await homes.shows(homes.ana, STOP)
        value = next(each["accessory"]["value"] for each in blocks if each.get("accessory"))
        place, run = value.split(" ")
        for forged in (
            "",
            run,
            place,
            f"{place} ",
            f"T0OTHER{place[place.index(':') :]} {run}",
            f"{value} x",
            "\0",
            None,
        ):
            homes.forge(homes.ana, STOP, forged)
        homes.forge(homes.chloe, STOP, value)  # she has no access
        await homes.delivered()
        await homes.open(homes.ana)
        await homes.shows(homes.ana, STOP)
        await homes.ana.click_home(STOP)
        await homes.slack.until(lambda _: homes.environment.found(root, "Stopped by Ana"))
        await homes.shows(homes.ana, "Recent", without=(STOP, ALLOW))
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_rule_is_revoked_by_the_person_who_made_it(serve, homes, model):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        model.reply(tool_call("write_file", PLAN))
        await homes.ana.say("general", "@alpha plan it")
        blocks = await homes.shows(homes.ana, ALWAYS)
        menu = next(each for block in blocks for each in block.get("elements", ()) if each.get("action_id") == ALWAYS)
        await homes.ana.click_home(ALWAYS, menu["options"][0]["value"])
        blocks = await homes.shows(homes.ana, "Always allowed", "`write_file` by Alpha", "this conversation")
        await homes.open(homes.ben)
        await homes.shows(homes.ben, "Agents", without=("Always allowed",))
        rule = next(each["accessory"]["value"] for each in blocks if each.get("accessory"))
        for forged in (rule, "no-such-rule", "", "a" * 3000, "<!channel>", None):
            homes.forge(homes.ben, REVOKE, forged)
        await homes.delivered()
        await homes.open(homes.ana)
        await homes.shows(homes.ana, "Always allowed")
        await homes.ana.click_home(REVOKE)
        await homes.shows(homes.ana, "Usage", without=("Always allowed",))
        model.reply(tool_call("write_file", PLAN))
        await homes.ana.say("general", "@alpha plan it again")
        await homes.shows(homes.ana, "Allow write_file?")
        assert await service.ended(signal.SIGTERM) == 0


async def test_people_without_access_read_why(serve, homes):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.chloe)
        await homes.shows(homes.chloe, "may", without=("Agents", "Usage"))
        assert await service.ended(signal.SIGTERM) == 0


async def test_changes_that_come_close_together_make_few_calls_and_a_refused_one_stops_nothing(serve, homes, model):
    async with serve() as service:
        await service.says("service.ready")
        await homes.open(homes.ana)
        await homes.shows(homes.ana, "Welcome")
        homes.slack.faults.next("views.publish", ErrorResponse("internal_error"), times=1)
        roots = [await homes.ana.say("general", f"@alpha number {number}") for number in range(8)]
        for root in roots:
            await homes.slack.until(lambda _, root=root: homes.environment.said(root)[-1:] == ["fine"])
        await homes.shows(homes.ana, "*Today:* 8 runs,")
        assert len(homes.published()) <= 6
        assert await service.ended(signal.SIGTERM) == 0
