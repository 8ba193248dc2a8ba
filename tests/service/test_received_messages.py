"""A service that reads threads from what events brought, because Slack lets its app read one page a minute."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import aclosing
from itertools import permutations

import pytest
from service_process import run_command
from slack_sdk.web.async_client import AsyncWebClient

from connector.slack_api.client import SlackClient
from connector.slack_api.rate_limiter import RateLimiter
from connector.slack_api.received import ReceivedHistory
from orchestrator_interactive.storage.retry import StoreRetryPolicy
from service.received import StoredMessages
from service.store import open_run_store

FILE = """
instances: {alpha: {persona: {name: Alpha, emoji: ":owl:"}}}
slack: {history: events}
workspace: {root: files}
store: sqlite:kept.db
"""


@pytest.fixture
def given(config_file):
    return config_file(FILE)


@pytest.fixture
def serve(agents_in, environment, model_env, given):
    return lambda: environment.serving("--config", str(given), **model_env)


def reads(slack, ts) -> list[dict]:
    """Return the calls that read this thread; posts of a killed process are looked up in theirs."""
    found = [each for each in slack.record if each.get("method") in {"conversations.replies", "conversations.history"}]
    return [each for each in found if ts in json.dumps(each)]


def kept(given) -> dict[str, str]:
    return {"AMPLIFIER_SLACK_STORE": f"sqlite:{given.parent}/kept.db"}


async def test_a_thread_is_read_without_a_call_also_after_a_kill(serve, slack, environment, model, given):
    ana, ben = slack.as_person("ana"), slack.as_person("ben")
    async with serve() as service:
        await service.says("service.ready")
        await slack.until(lambda ws: ws.bot_online)
        root = await ana.say("general", "the budget is 17 owls")
        reply = await ben.say("general", "make it 18", thread=root)
        secret = await ben.say("general", "my password is hunter2", thread=root)
        await ben.edit("general", reply, "make it 19 owls")
        await ben.delete("general", secret)
        await slack.as_person("chloe").say("random", "a message elsewhere")
        other = await ana.say("general", "@alpha hello")
        await slack.until(lambda _: environment.said(other)[-1:] == ["fine"])
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await service.says("service.ready")
        await slack.until(lambda ws: ws.bot_online)
        await ana.say("general", "@alpha how many?", thread=root)
        await slack.until(lambda _: environment.said(root)[-1:] == ["fine"])
        asked = json.dumps(model.bodies[-1])
        assert "the budget is 17 owls" in asked
        assert "make it 19 owls" in asked
        assert not re.search("make it 18|hunter2|elsewhere", asked)
        assert reads(slack, root) == []
        assert await service.ended(signal.SIGTERM) == 0

    person = slack.as_person("chloe").person.id, "--config", str(given)
    assert "a message elsewhere" in (await run_command("people", "export", *person, env=kept(given))).output
    erased = await run_command("people", "erase", "--yes", *person, env=kept(given))
    assert erased.code == 0, erased.output
    assert "a message elsewhere" not in (await run_command("people", "export", *person, env=kept(given))).output


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_events_in_any_order_and_repeated_ones_leave_the_last_version(url, is_deleted):
    begun_s = time.time() - 60

    def events(channel):
        post = {"type": "message", "channel": channel, "user": "U1", "ts": f"{begun_s:.6f}", "text": "first"}
        yield post
        for number, text in enumerate(("second", "third"), 1):
            version = {**post, "text": text, "edited": {"user": "U1", "ts": f"{begun_s + number:.6f}"}}
            yield {"type": "message", "subtype": "message_changed", "channel": channel, "message": version}
        if is_deleted:
            gone = {"deleted_ts": post["ts"], "previous_message": version}
            yield {"type": "message", "subtype": "message_deleted", "channel": channel, **gone}

    async with aclosing(await open_run_store(url)) as store, RateLimiter("") as limiter:
        received = StoredMessages(store, StoreRetryPolicy())
        history = ReceivedHistory(SlackClient(AsyncWebClient(), limiter), received, "T1", "UBOT")
        for number, order in enumerate(permutations(range(4 if is_deleted else 3))):
            came = list(events(f"C{number}"))
            for each in (*order, *order):
                await history.receive(came[each])
            found = [each["text"] for each in await history.known(f"C{number}", None)]
            assert found == ([] if is_deleted else ["third"]), order


async def test_what_is_known_of_deleted_messages_takes_no_room_for_long(url):
    clock = [time.time()]
    old, young = f"{clock[0] - 80_000:.6f}", f"{clock[0] - 60:.6f}"
    async with aclosing(await open_run_store(url)) as store:
        received = StoredMessages(store, StoreRetryPolicy(), now_s=lambda: clock[0])
        await received.delete("T1", "C1", old)
        assert await store.documents("received:T1:C1") == {}
        await received.put("T1", "C1", {"ts": old, "text": "kept"})
        for ts in (old, young):
            await received.delete("T1", "C1", ts)
            await received.put("T1", "C1", {"ts": ts, "text": "again"})
        assert await received.of_channel("T1", "C1") == []
        clock[0] += 3_700
        await received.delete_expired()
        assert await store.documents("received:T1:C1") == {}
