from __future__ import annotations

import asyncio
from itertools import count

import pytest
from chat import Chat

from connector import AccessRules
from connector.inbound.access_policy import AccessPolicy, Actor
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.users import Users
from local_slack import LocalSlack, RetrySchedule
from local_slack.delivery.faults import Dropped, SlowResponse

NOT_A_USER = "You may not use me"
NOT_HERE = "I may not be used in this channel"
NO_GUESTS = "Guests of this workspace may not use me"
EXTERNAL = "I work for the people of another workspace only"
ONLY_ANA = AccessRules(users=frozenset({"U0ANA"}))
_numbers = count(1)


class Client:
    """A client with one profile: it returns it, fails with its `error`, or never answers."""

    def __init__(self, **profile: object) -> None:
        self.profile = profile
        self.calls = 0

    async def call(self, method: str, arguments: dict, slot: object) -> dict:
        assert (method, list(arguments)) == ("users.info", ["user"])
        self.calls += 1
        if not self.profile:
            await asyncio.Event().wait()
        if "error" in self.profile:
            raise SlackCallFailed(method, str(self.profile["error"]))
        return {"ok": True, "user": self.profile}


def policy(client: Client, rules: AccessRules = AccessRules(), **options) -> AccessPolicy:  # noqa: B008 - it is frozen
    return AccessPolicy(rules, "T1", Users(client), **options)


@pytest.mark.parametrize(
    ("profile", "is_refused"),
    [
        ({"id": "U1", "team_id": "T1"}, False),
        ({"id": "U1", "team_id": "T2"}, True),
        ({"id": "U1", "team_id": "T1", "is_stranger": True}, True),
        ({"id": "U1"}, False),
        ({"error": "user_not_found"}, True),
    ],
)
async def test_a_user_without_a_known_workspace_is_looked_up_once(profile, is_refused):
    access = policy(client := Client(**profile))
    for is_shared in (True, None, True) if "error" not in profile else (True,) * 3:
        assert (await access.refusal(Actor("U1", "C1", None, is_shared)) is not None) is is_refused
    assert client.calls == 1


async def test_without_a_timely_profile_a_click_is_accepted_and_a_message_in_a_shared_channel_refused():
    users = Users(Client())
    access = AccessPolicy(AccessRules(), "T1", users, profile_timeout_s=0.01)
    assert await access.refusal(Actor("U1", "C1", None, None)) is None
    assert await access.refusal(Actor("U1", "C1", None, True)) is not None
    await users.close()


@pytest.mark.parametrize("profile", [{"is_restricted": True}, {"is_restricted": True, "is_ultra_restricted": True}])
async def test_guests_are_refused_by_their_rule_and_looked_up_once(profile):
    client, no_guests = Client(id="U1", team_id="T1", **profile), AccessRules(guests=False)
    access = policy(client, no_guests)
    for _ in range(2):
        assert (await access.refusal(Actor("U1", "C1", "T1"))).startswith(NO_GUESTS)
    assert client.calls == 1
    assert await policy(Client(id="U2", team_id="T1"), no_guests).refusal(Actor("U2", "C1", "T1")) is None
    assert await policy(Client()).refusal(Actor("U1", "C1", "T1")) is None, "guests are allowed by default"


async def test_a_user_whose_profile_is_not_available_is_asked_to_write_again_where_guests_are_refused():
    access = policy(Client(), AccessRules(guests=False), profile_timeout_s=0.01)
    assert "Write again later" in await access.refusal(Actor("U1", "C1", "T1"))


@pytest.mark.parametrize(("home", "is_refused"), [("T1", False), ("E1", False), ("T2", True), ("E2", True)])
async def test_users_of_the_own_workspace_and_organisation_are_allowed(home, is_refused):
    assert (await policy(Client(), enterprise="E1").refusal(Actor("U1", "C1", home)) is not None) is is_refused
    assert await policy(Client()).refusal(Actor("U1", "C1", "E1")) is not None


async def test_a_refused_user_is_notified_once_an_hour_in_each_channel():
    now_s = 1000.0
    access = policy(Client(), now_s=lambda: now_s)
    here, there, other = Actor("U1", "C1"), Actor("U1", "C2"), Actor("U2", "C1")
    assert [access.should_notify(each) for each in (here, here, there, other)] == [True, False, True, True]
    now_s += 3599
    assert not access.should_notify(here)
    now_s += 1
    assert access.should_notify(here)


@pytest.fixture
async def slack():
    async with LocalSlack(limits=None, kinds={"chloe": "guest"}, retries=RetrySchedule(3, (0.05, 0.1, 0.1))) as slack:
        yield slack


def notices(chat, channel: str, who: str) -> list[str]:
    """Return the ephemeral messages that only this person sees."""
    place = chat.slack.channel(channel).id, chat.slack.person(who).id
    posts = [call["arguments"] for call in chat.calls("chat.postEphemeral") if call["ok"]]
    return [post["text"] for post in posts if (post["channel"], post["user"]) == place]


async def is_refused(chat, who: str, reason: str, channel: str = "general") -> None:
    """Check that this person has got the reason, once, and that no run has started."""
    await chat.acknowledged()
    await chat.slack.until(lambda _: notices(chat, channel, who))
    (notice,) = notices(chat, channel, who)
    assert notice.startswith(reason)
    await chat.starts_next()


async def test_a_user_who_is_not_listed_gets_one_notice_and_nothing_else(process):
    async with process(policy=ONLY_ANA) as chat:
        ts = await chat.ben.say("general", "@alpha look")
        await chat.ben.say("general", "@alpha please")
        await is_refused(chat, "ben", NOT_A_USER)
        (message,) = chat.slack.workspace.thread("general", ts)
        assert message.reactions == ()


@pytest.mark.parametrize(
    ("rules", "who", "reason"),
    [(AccessRules(guests=False), "chloe", NO_GUESTS), (AccessRules(channels=frozenset({"C0RANDOM"})), "ben", NOT_HERE)],
)
async def test_a_guest_and_a_channel_that_is_not_listed_are_refused_with_a_notice(process, slack, rules, who, reason):
    async with process(policy=rules) as chat:
        await chat.ben.dm("alpha", "hello")
        assert (await chat.sessions.next_run()).prompt == "hello"
        await slack.as_person(who).say("general", "@alpha look")
        await is_refused(chat, who, reason)


async def test_a_refused_user_gets_no_notice_for_messages_that_do_not_address_the_bot(process):
    async with process(policy=ONLY_ANA) as chat:
        thread = await chat.start()
        await chat.ben.say("general", "nice weather")
        await thread.say("me too", who="ben")
        await thread.say("and that")
        await thread.run.injected("and that")
        assert notices(chat, "general", "ben") == []


async def test_a_refused_user_stops_edits_and_deletes_nothing(process):
    async with process(policy=ONLY_ANA) as chat:
        thread = await chat.start()
        status = await thread.status()
        word = await thread.say("stop", who="ben")
        await thread.cross(status.ts, who="ben")
        await thread.cross(who="ben")
        await chat.ben.stop_session("general", thread.ts)
        await chat.ben.click("general", status.ts, "stop")
        await chat.ben.edit("general", word, "@alpha stop")
        await chat.ben.delete("general", word)
        await thread.say("and that")
        await thread.run.injected("and that")
        assert thread.run.stops == []


def slowest_ms(slack) -> float:
    return max(entry["latency_ms"] for entry in slack.record if entry["what"] == "acked")


async def test_replies_in_a_thread_without_an_agent_are_acknowledged_without_a_look_up_of_their_authors(process, slack):
    async with process(policy=AccessRules(guests=False)) as chat:
        chat.fail("users.info", SlowResponse(30), times=1_000)
        thread = await chat.say("among ourselves")
        replies = [await thread.say(f"reply {number}", who="ben") for number in range(40)]
        await chat.ben.edit("general", replies[0], "another reply")
        await chat.ben.delete("general", replies[1])
        await chat.acknowledged()
        assert slowest_ms(slack) < 500
        assert not chat.calls("users.info")


async def test_of_many_replies_by_a_guest_only_the_first_waits_for_the_profile(process, slack):
    async with process(policy=AccessRules(guests=False)) as chat:
        thread = await chat.start()
        chat.fail("users.info", SlowResponse(30), times=1_000)
        for number in range(20):
            await thread.say(f"reply {number}", who="chloe")
        await chat.acknowledged()
        assert slowest_ms(slack) < 2_500, "once for one second"
        await thread.say("and that")
        await thread.run.injected("and that")


async def test_people_correct_withdraw_and_stop_while_slack_does_not_tell_who_is_a_guest(process):
    async with process(policy=AccessRules(guests=False)) as chat:
        thread = await chat.start_shown()
        reply = await thread.inject("and May")
        chat.fail("users.info", SlowResponse(30), times=1_000)
    async with process(policy=AccessRules(guests=False)):
        run = await thread.next_run()
        await run.injected("and May")
        await thread.edit(thread.ts, "@alpha look closely")
        await run.injected("and May", "(Correction of my earlier message. It now reads:) look closely")
        await thread.delete(reply)
        await run.injected("(Correction of my earlier message. It now reads:) look closely")
        await thread.cross()
        await run.stopped(False)
        await run.answer("", status="cancelled")
        await thread.contains("🛑 Stopped by ")


async def test_each_message_to_an_agent_is_answered_while_slack_does_not_tell_who_is_a_guest(process):
    async with process(policy=AccessRules(guests=False)) as chat:
        thread = await chat.start_shown()
        await thread.run.answer("ok")
        await thread.shows("ok")
    async with process(policy=AccessRules(guests=False)) as chat:
        chat.fail("users.info", SlowResponse(30), times=1_000)
        for number, text in enumerate(("and May", "and June", "@alpha and July"), start=1):
            await thread.say(text)
            await chat.slack.until(lambda _, number=number: len(notices(chat, "general", "ana")) == number)
        await chat.acknowledged()
        assert {each.endswith("Write again later.") for each in notices(chat, "general", "ana")} == {True}
        assert len(notices(chat, "general", "ana")) == number


async def test_replies_by_guests_that_arrive_before_a_mention_are_not_injected(process, slack):
    async with process(policy=AccessRules(guests=False)) as chat:
        thread = await chat.say("among ourselves")
        await chat.acknowledged()
        slack.deliveries.next(Dropped(), times=2)
        await thread.say("@alpha look")
        await thread.say("from chloe", who="chloe")
        await thread.say("from ana")
        await (await thread.next_run()).injected("from ana")
        await chat.acknowledged()
        assert thread.run.texts == ["from ana"]


@pytest.mark.parametrize(
    ("rules", "expected"), [(ONLY_ANA, ["from ana"]), (AccessRules(guests=False), ["from ben", "from ana"])]
)
async def test_of_the_replies_after_a_late_mention_those_of_allowed_users_are_read(
    process, slack, sessions, rules, expected
):
    thread = await Chat(slack, sessions).say("hi")
    mention = await thread.say("@alpha look")
    for who in ("ben", "chloe", "ana"):
        await thread.say(f"@alpha from {who}", who=who)
    await slack.as_person("ben").delete("general", await thread.say("deleted", who="ben"))
    slack.socket_mode.delivery.close()
    async with process(policy=rules) as chat:
        for _ in range(2):
            chat.deliver(chat.posted(mention, f"<@{slack.bot_user_id}> look", thread_ts=thread.ts))
        await (await thread.next_run()).injected(*expected)
        await chat.acknowledged()
        assert thread.run.texts == expected
        await slack.until(lambda _: notices(chat, "general", "chloe"))


async def test_a_reply_does_not_start_the_thread_of_a_refused_user(process):
    """The reply arrives before the message that starts the thread."""
    async with process(policy=ONLY_ANA) as chat:
        root = await chat.ben.say("general", "@alpha look")
        await chat.ana.say("general", "and this", thread=root)
        await chat.starts_next()


def mention_by_ben(chat, *, is_shared: bool = True, **fields: object) -> None:
    event = chat.posted(f"1700000000.{next(_numbers):06d}", f"<@{chat.slack.bot_user_id}> look", **fields)
    chat.deliver({**event, "user": chat.ben.person.id}, is_ext_shared_channel=is_shared)


@pytest.mark.parametrize(
    "fields",
    [
        {"user_team": "T0ELSE"},
        {"source_team": "T0ELSE"},
        {"team": "T0ELSE"},
        {"user_team": "E0ELSE", "team": None},
        {"user_team": "E0ELSE", "source_team": "E0ELSE", "team": "T0LOCAL"},
    ],
)
async def test_a_user_of_another_workspace_gets_a_notice(process, fields):
    async with process(policy=AccessRules()) as chat:
        mention_by_ben(chat, **fields)
        await is_refused(chat, "ben", EXTERNAL)


async def test_a_user_of_another_workspace_is_allowed_by_their_rule(process):
    async with process(policy=AccessRules(external=True)) as chat:
        mention_by_ben(chat, user_team="T0ELSE")
        assert (await chat.sessions.next_run()).prompt == "look"


async def test_the_author_of_messages_in_a_shared_channel_is_looked_up_once(process):
    async with process(policy=AccessRules()) as chat:
        for _ in range(2):
            mention_by_ben(chat)
        for _ in range(2):
            await chat.sessions.next_run()
        await chat.acknowledged()
        assert len(chat.calls("users.info")) == 1, "for the policy and for their name"


async def test_a_user_without_a_workspace_is_allowed_in_a_channel_that_is_not_shared(process):
    async with process(policy=AccessRules()) as chat:
        mention_by_ben(chat, is_shared=False, team=None)
        await chat.sessions.next_run()
