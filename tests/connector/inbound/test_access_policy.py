"""Who may use the bot, and where."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import pytest
from fake_sessions import FakeSessionManager

from connector import AccessRules, Instance, Persona, SlackCredentials, SocketTransport, connected
from connector.inbound.access_policy import AccessPolicy, Actor
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.users import Users
from local_slack import LocalSlack, Refuses, RetrySchedule
from local_slack.delivery.delivery import Envelope
from local_slack.delivery.delivery_faults import Lost
from local_slack.delivery.faults import Slow

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
NOT_YOU = "You may not use me"
NOT_HERE = "I may not be used in this channel"
NO_GUESTS = "Guests of this workspace may not use me"
STRANGER = "I work for the people of another workspace only"
_numbers = count(1)


@pytest.fixture
async def slack():
    async with LocalSlack(limits=None, guests=["chloe"], retries=RetrySchedule(3, (0.05, 0.1, 0.1))) as slack:
        yield slack


@pytest.fixture
def under(slack, runs, scene_of):
    """The connector under a policy."""

    @asynccontextmanager
    async def under(policy: AccessRules):
        access, sessions = (
            SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token)),
            FakeSessionManager(),
        )
        async with connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1, policy=policy):
            await slack.until(lambda ws: ws.bot_online)
            yield scene_of(slack, sessions)

    return under


def only_ana(slack) -> AccessRules:
    return AccessRules(users=frozenset({slack.person("ana").id}))


class People:
    """Says of everybody what Slack would say of them, after a while or not at all."""

    def __init__(self, **told: object) -> None:
        self.told = told
        self.asked = 0

    async def call(self, method: str, arguments: dict, turn: object) -> dict:
        assert (method, list(arguments)) == ("users.info", ["user"])
        self.asked += 1
        if not self.told:
            await asyncio.Event().wait()
        if "error" in self.told:
            raise SlackCallFailed(method, str(self.told["error"]))
        return {"ok": True, "user": self.told}


@pytest.mark.parametrize(
    ("told", "is_refused"),
    [
        ({"id": "U1", "team_id": "T1"}, False),
        ({"id": "U1", "team_id": "T2"}, True),
        ({"id": "U1", "team_id": "T1", "is_stranger": True}, True),
        ({"id": "U1"}, False),
    ],
)
async def test_slack_says_who_is_a_stranger_and_is_asked_once(told, is_refused):
    people = People(**told)
    gate = AccessPolicy(AccessRules(), "T1", Users(people))
    for is_shared in (None, True, None):
        assert (await gate.refusal(Actor("U1", "C1", None, is_shared)) is not None) is is_refused
    assert people.asked == 1


async def test_a_click_counts_where_slack_does_not_say_in_time_whose_people_they_are():
    names = Users(People())
    gate = AccessPolicy(AccessRules(), "T1", names, profile_timeout_s=0.01)
    assert await gate.refusal(Actor("U1", "C1", None, None)) is None
    assert await gate.refusal(Actor("U1", "C1", None, True)) is not None
    await names.close()


async def test_whom_slack_does_not_know_is_refused_and_not_asked_about_again():
    people = People(error="user_not_found")
    gate = AccessPolicy(AccessRules(), "T1", Users(people))
    for _ in range(3):
        assert await gate.refusal(Actor("U1", "C1", None, True)) is not None
    assert people.asked == 1


@pytest.mark.parametrize("told", [{"is_restricted": True}, {"is_restricted": True, "is_ultra_restricted": True}])
async def test_guests_are_refused_where_the_policy_says_so_and_slack_is_asked_once(told):
    people = People(id="U1", team_id="T1", **told)
    gate = AccessPolicy(AccessRules(guests=False), "T1", Users(people))
    for _ in range(2):
        assert (await gate.refusal(Actor("U1", "C1", "T1"))).startswith(NO_GUESTS)
    assert people.asked == 1
    member = Users(People(id="U2", team_id="T1"))
    assert await AccessPolicy(AccessRules(guests=False), "T1", member).refusal(Actor("U2", "C1", "T1")) is None
    assert await AccessPolicy(AccessRules(), "T1", Users(People())).refusal(Actor("U1", "C1", "T1")) is None, (
        "they may by default"
    )


async def test_nobody_is_let_in_while_slack_does_not_say_who_is_a_guest():
    gate = AccessPolicy(AccessRules(guests=False), "T1", Users(People()), profile_timeout_s=0.01)
    assert "Write again later" in await gate.refusal(Actor("U1", "C1", "T1"))


@pytest.mark.parametrize(("home", "is_refused"), [("T1", False), ("E1", False), ("T2", True), ("E2", True)])
async def test_an_organisation_that_is_not_ours_is_elsewhere(home, is_refused):
    gate = AccessPolicy(AccessRules(), "T1", Users(People()), enterprise="E1")
    assert (await gate.refusal(Actor("U1", "C1", home)) is not None) is is_refused
    assert await AccessPolicy(AccessRules(), "T1", Users(People())).refusal(Actor("U1", "C1", "E1")) is not None


async def test_people_are_told_once_an_hour_in_each_channel():
    now_s = 1000.0
    gate = AccessPolicy(AccessRules(), "T1", Users(People()), now_s=lambda: now_s)
    here, there, other = Actor("U1", "C1"), Actor("U1", "C2"), Actor("U2", "C1")
    assert [gate.should_notify(each) for each in (here, here, there, other)] == [True, False, True, True]
    now_s += 3599
    assert not gate.should_notify(here)
    now_s += 1
    assert gate.should_notify(here)


def whispers(slack, channel: str, to: str) -> list[str]:
    """What only this person reads there."""
    user, found = slack.person(to).id, []
    for entry in slack.record:
        arguments = entry.get("arguments") or {}
        is_one = entry["what"] == "call" and entry["method"] == "chat.postEphemeral" and entry["ok"]
        if is_one and (arguments["channel"], arguments["user"]) == (slack.channel(channel).id, user):
            found.append(arguments["text"])
    return found


async def all_taken(slack) -> None:
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)


async def told(slack, channel: str, to: str, text: str) -> None:
    """This person has read this, and only once."""
    await all_taken(slack)
    await slack.until(lambda _: whispers(slack, channel, to))
    assert len(whispers(slack, channel, to)) == 1
    assert whispers(slack, channel, to)[0].startswith(text)


async def next_is_anas(scene, prompt: str = "elsewhere") -> None:
    """Nothing has started a run before this."""
    await all_taken(scene.slack)
    await scene.ana.say("random", f"@alpha {prompt}")
    assert (await scene.sessions.next_run()).prompt == prompt
    assert scene.sessions.prompts[-1] == prompt


async def test_who_is_not_among_the_users_is_told_so_once_and_nothing_comes_of_it(slack, under):
    async with under(only_ana(slack)) as scene:
        ts = await scene.ben.say("general", "@alpha look")
        await scene.ben.say("general", "@alpha please")
        await told(slack, "general", "ben", NOT_YOU)
        await next_is_anas(scene)
        assert scene.message("general", ts).reactions == ()
        assert scene.texts("general", ts) == []


async def test_a_guest_is_told_so_and_others_are_answered(slack, under):
    async with under(AccessRules(guests=False)) as scene:
        await slack.as_person("chloe").say("general", "@alpha look")
        await told(slack, "general", "chloe", NO_GUESTS)
        await next_is_anas(scene)


async def test_replies_to_others_are_acknowledged_without_asking_slack_whether_their_authors_are_guests(slack, under):
    async with under(AccessRules(guests=False)) as scene:
        slack.faults.next("users.info", Slow(30), times=1_000)
        root = await scene.ana.say("general", "among ourselves")
        replies = [await scene.ben.say("general", f"reply {number}", thread=root) for number in range(40)]
        await scene.ben.edit("general", replies[0], "another reply")
        await scene.ben.delete("general", replies[1])
        await all_taken(slack)
        assert slowest_ms(slack) < 500
        assert not any(entry.get("method") == "users.info" for entry in slack.record)


async def test_a_guest_whose_replies_wait_for_slack_delays_the_first_of_them_alone(slack, under):
    async with under(AccessRules(guests=False)) as scene:
        root = await scene.ana.say("general", "@alpha look")
        run = await scene.sessions.next_run()
        slack.faults.next("users.info", Slow(30), times=1_000)
        for number in range(20):
            await slack.as_person("chloe").say("general", f"reply {number}", thread=root)
        await all_taken(slack)
        assert slowest_ms(slack) < 2_500, "once for one second"
        await scene.ana.say("general", "and that", thread=root)
        await run.until(lambda r: [steer.text for steer in r.steers] == ["and that"])


def slowest_ms(slack) -> float:
    return max(entry["latency_ms"] for entry in slack.record if entry["what"] == "acked")


async def test_replies_of_guests_that_overtake_a_mention_are_not_read(slack, under):
    async with under(AccessRules(guests=False)) as scene:
        root = await scene.ana.say("general", "among ourselves")
        await all_taken(slack)
        slack.deliveries.next(Lost(), times=2)
        await scene.ana.say("general", "@alpha look", thread=root)
        await slack.as_person("chloe").say("general", "from chloe", thread=root)
        await scene.ana.say("general", "from ana", thread=root)
        run = await scene.sessions.next_run()
        await run.until(lambda r: [steer.text for steer in r.steers] == ["from ana"])
        await all_taken(slack)
        assert [steer.text for steer in run.steers] == ["from ana"]


@pytest.mark.parametrize("policy", ["users", "guests"])
async def test_of_the_replies_before_a_late_mention_is_read_only_what_the_policy_lets_in(slack, runs, policy):
    ana, ben, chloe = (slack.as_person(name) for name in ("ana", "ben", "chloe"))
    root = await ana.say("general", "hi")
    mention = await ana.say("general", "@alpha look", thread=root)
    await ben.say("general", "from ben", thread=root)
    await chloe.say("general", "from chloe", thread=root)
    await ana.say("general", "from ana", thread=root)
    gone = await ben.say("general", "deleted", thread=root)
    await ben.delete("general", gone)
    slack.socket_mode.delivery.close()
    access, sessions = (
        SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token)),
        FakeSessionManager(),
    )
    allowed, read = {
        "users": (only_ana(slack), ["from ana"]),
        "guests": (AccessRules(guests=False), ["from ben", "from ana"]),
    }[policy]
    async with connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1, policy=allowed):
        await slack.until(lambda ws: ws.bot_online)
        for _ in range(2):
            deliver_to(slack, "ana", ts=mention, thread_ts=root)
        run = await sessions.next_run()
        await run.until(lambda r: len(r.steers) == len(read))
        await all_taken(slack)
        assert [steer.text for steer in run.steers] == read
        await run.read_steers()
        await run.answer("ok")


async def test_a_direct_message_of_who_is_not_among_the_users_is_told_so(slack, under):
    async with under(only_ana(slack)) as scene:
        dm = await scene.ben.open_dm("alpha")
        await scene.ben.say(dm, "hello")
        await told(slack, dm, "ben", NOT_YOU)
        await next_is_anas(scene)


async def test_what_is_not_said_to_the_bot_is_not_answered(slack, under):
    async with under(only_ana(slack)) as scene:
        ts = await scene.ana.say("general", "@alpha look")
        run = await scene.sessions.next_run()
        await scene.ben.say("general", "nice weather")
        await scene.ben.say("general", "me too", thread=ts)
        await scene.ana.say("general", "and that", thread=ts)
        await run.until(lambda r: [steer.text for steer in r.steers] == ["and that"])
        assert whispers(slack, "general", "ben") == []
        await run.read_steers()
        await run.answer("ok")


async def test_who_may_not_stops_edits_and_deletes_nothing(slack, under):
    async with under(only_ana(slack)) as scene:
        ts = await scene.ana.say("general", "@alpha look")
        run = await scene.sessions.next_run()
        status = await scene.status("general", ts)
        word = await scene.ben.say("general", "stop", thread=ts)
        await scene.ben.react("general", status.ts, "x")
        await scene.ben.react("general", ts, "x")
        await scene.ben.stop_session("general", ts)
        click(scene, "ben", status, run_id="")
        await scene.ben.edit("general", word, "@alpha stop")
        await scene.ben.delete("general", word)
        await scene.ana.say("general", "and that", thread=ts)
        await run.until(lambda r: [steer.text for steer in r.steers] == ["and that"])
        assert run.stops == []
        await run.read_steers()
        await run.answer("ok")


def click(scene, who: str, message, run_id: str, **user: object) -> None:
    channel = scene.slack.channel(message.channel).id
    place = {"message_ts": message.ts, "channel_id": channel, "thread_ts": message.thread_ts}
    payload = {
        "type": "block_actions",
        "team": {"id": scene.slack.team_id},
        "user": {"id": scene.slack.person(who).id, "team_id": scene.slack.team_id, **user},
        "container": {"type": "message", **place},
        "channel": {"id": channel},
        "message": {"ts": message.ts, "thread_ts": message.thread_ts, "user": scene.slack.bot_user_id},
        "actions": [{"action_id": "stop", "value": run_id, "action_ts": f"{float(message.ts) + 60:.6f}"}],
    }
    scene.slack.socket_mode.delivery.offer(Envelope(f"click-{next(_numbers)}", "interactive", payload))


async def test_in_other_channels_people_are_told_so_and_direct_messages_are_free(slack, under):
    async with under(AccessRules(channels=frozenset({slack.channel("random").id}))) as scene:
        await scene.ben.say("general", "@alpha look")
        await told(slack, "general", "ben", NOT_HERE)
        await scene.ben.dm("alpha", "hello")
        assert (await scene.sessions.next_run()).prompt == "hello"
        await next_is_anas(scene)


async def test_a_thread_that_somebody_else_has_begun_is_not_taken_in_with_a_reply(slack, under):
    """The reply overtakes the message that began the thread."""
    async with under(only_ana(slack)) as scene:
        root = await scene.ben.say("general", "@alpha look")
        await scene.ana.say("general", "and this", thread=root)
        await next_is_anas(scene)


def deliver(scene, is_shared: object = None, **fields: object) -> None:
    """A mention of Ben's, as Slack tells of it."""
    deliver_to(scene.slack, "ben", is_shared, **fields)


def deliver_to(slack, who: str, is_shared: object = None, **fields: object) -> None:
    event = {
        "type": "message",
        "user": slack.person(who).id,
        "text": f"<@{slack.bot_user_id}> look",
        "ts": f"1700000000.{next(_numbers):06d}",
        "channel": slack.channel("general").id,
        **fields,
    }
    payload = {"type": "event_callback", "team_id": slack.team_id, "event_id": "Ev1", "event": event}
    if is_shared is not None:
        payload["is_ext_shared_channel"] = is_shared
    slack.socket_mode.delivery.offer(Envelope(f"gate-{next(_numbers)}", "events_api", payload))


@pytest.mark.parametrize(
    "fields",
    [
        {"user_team": "T0ELSE"},
        {"source_team": "T0ELSE"},
        {"team": "T0ELSE"},
        {"user_team": "E0ELSE", "team": None},
        {"user_team": "E0ELSE", "source_team": "E0ELSE", "team": "E0ELSE"},
        {"user_team": "T0ELSE", "team": "T0LOCAL"},
        {"user_team": "E0ELSE", "team": "T0LOCAL"},
        {"user_team": "E0ELSE", "source_team": "E0ELSE", "team": "T0LOCAL"},
    ],
)
async def test_who_comes_from_another_workspace_is_told_so(slack, under, fields):
    async with under(AccessRules()) as scene:
        deliver(scene, is_shared=True, **fields)
        await told(slack, "general", "ben", STRANGER)
        await next_is_anas(scene)


async def test_who_comes_from_another_workspace_may_where_the_policy_says_so(slack, under):
    async with under(AccessRules(external=True)) as scene:
        deliver(scene, is_shared=True, user_team="T0ELSE")
        assert (await scene.sessions.next_run()).prompt == "look"


async def test_in_a_shared_channel_slack_is_asked_once_whose_people_they_are(slack, under):
    async with under(AccessRules()) as scene:
        deliver(scene, is_shared=True)
        deliver(scene, is_shared=True)
        await scene.sessions.next_run()
        await scene.sessions.next_run()
        await all_taken(slack)
        asked = [entry for entry in slack.record if entry.get("method") == "users.info"]
        assert len(asked) == 1, "for the gate and for their name"


async def test_where_slack_does_not_say_whose_people_they_are_a_shared_channel_is_closed(slack, under):
    async with under(AccessRules()) as scene:
        slack.faults.next("users.info", Refuses("user_not_found"))
        deliver(scene, is_shared=True)
        await told(slack, "general", "ben", STRANGER)


async def test_where_no_channel_is_shared_nobody_is_asked(slack, under):
    async with under(AccessRules()) as scene:
        deliver(scene, is_shared=False, team=None)
        run = await scene.sessions.next_run()
        await run.answer("ok")
