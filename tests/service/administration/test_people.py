"""What one person wrote can be exported, and erased without harm to what others wrote."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import asdict, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from service_process import run_command
from store_corruption import damage_inbox

from connector.protocols import InboxEntry, StateChanges, Worker
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.export import as_json_lines
from orchestrator_interactive.interactions.feedback import FeedbackState, feedback, rate
from orchestrator_interactive.interactions.rows import states_of
from orchestrator_interactive.interactions.states import AssistantMessageState
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.loop.injection_queue import Injection, Talk, injection_row, talk_row
from orchestrator_interactive.modules.context_stack import StackContext, StackOptions
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from orchestrator_interactive.testing import MockProvider
from orchestrator_interactive.transcript.framing import Author, message_text
from orchestrator_interactive.transcript.rows import joined, user_row
from service.administration.people import erase, messages_of, overwrite_deleted
from service.doctor.delivery_audit import check
from service.schedules.stored import StoredSchedules
from service.sessions.memory import ChannelMemory
from service.store import open_log_store, open_run_store

ANA, BEN = Author("U0ANA", "Ana Lovelace"), Author("U0BEN", "Ben")
HERE = "T:C:1.0"
FILE = """
instances: {alpha: {persona: {name: Alpha, emoji: ":owl:"}}}
store: sqlite:kept.db
audit: audit.jsonl
"""


class Stored:
    def __init__(self, runs, logs):
        self.runs = runs
        self.logs = logs
        self.stack = InteractionStack(logs, HERE, "alpha")

    async def deliver(self, *messages, as_prompt=True):
        """Store delivered messages (author, text, number): a prompt, or injections of one drain."""
        injections = [Injection(text, f"T:C:{number}.0", author) for author, text, number in messages]
        for each in injections:
            await self.runs.admit(HERE, InboxEntry(each.id, "message", {}), "alpha")
        if as_prompt and len(injections) == 1:
            (each,) = injections
            row = user_row(message_text(each.text, each.author), each.id)
        else:
            row = injection_row(injections)
        await self.stack.push(*states_of(row, {}), AssistantMessageState("Yes."))
        await self.close({each.id: "" for each in injections})

    async def close(self, ends):
        claim = await self.runs.claim(HERE, "owner", 10)
        closed = {entry.seq: ends[entry.id] for entry in claim.entries if entry.id in ends}
        await self.runs.write(HERE, claim.token, StateChanges(closed=closed))
        await self.runs.release(HERE, claim.token, None)

    async def wait(self, author, text, number, place=HERE):
        """Store a pending message."""
        message = {"user": author.id, "text": text, "ts": f"{number}.0", "files": []}
        data = {"message": message, "prompt": text, "instance": "alpha"}
        await self.runs.admit(place, InboxEntry(f"T:C:{number}.0", "message", data), "alpha")

    async def texts(self, author):
        return [(each["text"], each["state"]) async for each in messages_of(author.id, self.logs, self.runs)]


@pytest.fixture
def opened(request, tmp_path_factory):
    """Open new stores at SQLite or Redis, and read all bytes there."""

    class Opened:
        def __init__(self, kind):
            self.is_redis = kind == "redis"
            self.folder = tmp_path_factory.mktemp("store")
            self.url = f"sqlite:{self.folder}/kept.db"
            if self.is_redis:
                server = request.getfixturevalue("redis")
                server.ask("FLUSHALL")
                self.url = server.url

        async def __aenter__(self):
            self.runs, self.logs = await open_run_store(self.url), await open_log_store(self.url)
            return Stored(self.runs, self.logs)

        async def __aexit__(self, *_):
            await self.runs.aclose()
            await self.logs.aclose()

        def bytes(self) -> bytes:
            if not self.is_redis:
                return b"".join(each.read_bytes() for each in self.folder.iterdir())
            with Redis.from_url(self.url) as redis:
                kinds = {b"hash": redis.hgetall, b"set": redis.smembers, b"string": redis.get}
                kinds |= {b"zset": lambda key: redis.zrange(key, 0, -1)}
                return b"".join(str(kinds[redis.type(key)](key)).encode() for key in redis.scan_iter())

    return Opened


WORDS = st.lists(st.sampled_from(["one\ntwo", "- x (U0ANA): no", "ok", "Ben (U0BEN): no", "…"]), min_size=1, max_size=3)
TALK = st.lists(st.lists(st.tuples(st.booleans(), WORDS), min_size=1, max_size=3), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(talk=TALK)
def test_after_an_erasure_no_byte_of_the_texts_is_left_and_the_audit_holds(opened, kind, talk):
    async def work():
        store, number, ana_has, ben_has = opened(kind), 1, 0, []
        async with store as stored:
            for drain in talk:
                messages = []
                for is_ana, words in drain:
                    number += 1
                    text = (
                        f"secret{number}zz " + "\nsecretzz ".join(words)
                        if is_ana
                        else f"kept{number} {' '.join(words)}"
                    )
                    ana_has += is_ana
                    ben_has += [] if is_ana else [("\n".join(text.splitlines()), "delivered")]
                    messages.append((ANA if is_ana else BEN, text, number))
                await stored.deliver(*messages)
            await stored.wait(ANA, "secret pending", 900)
            await stored.wait(BEN, "kept pending", 901)
            assert len(await stored.texts(ANA)) == ana_has + 1
            done = await erase(ANA.id, stored.logs, stored.runs)
            assert await overwrite_deleted(store.url)
            assert (done.messages, done.kept) == (ana_has + 1, {})
            assert (await check(stored.runs, stored.logs)).violations == ()
            assert await stored.texts(ANA) == []
            assert await stored.texts(BEN) == [*ben_has, ("kept pending", "pending")]
            assert (await erase(ANA.id, stored.logs, stored.runs)).messages == 0
            left = store.bytes()
            assert b"secret" not in left
            assert b"Lovelace" not in left
            assert b"kept pending" in left

    asyncio.run(work())


@pytest.mark.parametrize("is_one_row", [False, True])
async def test_talk_is_exported_and_erased_like_other_messages(opened, is_one_row):
    said = [(BEN, "kept\n- Ana (U0ANA): yes", 2), (ANA, "secret", 3), (BEN, "too", 4)]
    items = [(f"T:C:{n}.0", message_text(words, author, ["a.md"], float(n))) for author, words, n in said]
    rows = [talk_row(Talk(tuple(items), 7)), user_row(message_text("do it", ANA), "T:C:9.0")]
    async with opened("sqlite") as stored:
        await stored.stack.push(
            *(state for row in ([joined(rows)] if is_one_row else rows) for state in states_of(row, {}))
        )
        of_ana = [(each["text"], each["time"]) async for each in messages_of(ANA.id, stored.logs, stored.runs)]
        assert of_ana == [("secret", "1970-01-01T00:00:03+00:00"), ("do it", "1970-01-01T00:00:09+00:00")]
        assert (await erase(ANA.id, stored.logs, stored.runs)).messages == 2
        assert await stored.texts(ANA) == []
        assert await stored.texts(BEN) == [("kept\n- Ana (U0ANA): yes", "delivered"), ("too", "delivered")]


async def test_a_message_that_an_active_run_has_read_is_exported_once(opened):
    async with opened("sqlite") as stored:
        await stored.wait(ANA, "mine", 2)
        await stored.stack.push(*states_of(user_row(message_text("mine", ANA), "T:C:2.0"), {}))
        assert await stored.texts(ANA) == [("mine", "delivered")]


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_shortened_forms_and_summaries_of_messages_are_erased(opened, kind):
    options = StackOptions(strategy="summary", summary_max_tokens=60)
    provider = MockProvider(["Ana has told secret things."], default="They talked.")
    async with opened(kind) as stored:

        async def asked(*rows):
            """Add rows in a new process, and return the model's request as text."""
            context = StackContext(options, HookRegistry().emit, InteractionStack(stored.logs, HERE, "alpha"))
            await context.add_messages(rows)
            return str(await context.get_messages_for_request(3000, provider))

        words = "word " * 1500
        said = [(ANA, f"secret{number} {words}", number) for number in (2, 3)]
        said += [(BEN, f"kept4 {words}", 4), (BEN, "kept5", 5)]
        before = await asked(
            *(user_row(message_text(f"secret {words}", ANA), "T:C:1.0"), {"role": "assistant", "content": "Yes."}),
            user_row(message_text("kept1", BEN), "T:C:1.5"),
            *(injection_row([Injection(text, f"T:C:{number}.0", author)]) for author, text, number in said),
        )
        assert all(each in before for each in ("secret2", "secret3", "secret things", "kept4"))
        assert (await erase(ANA.id, stored.logs, stored.runs)).messages == 3
        pages = [page async for page in as_json_lines(stored.logs, stored.stack.key)]
        after = await asked()
        assert all(each in after for each in ("kept1", "kept4", "kept5", "someone (erased)"))
        assert not any(each in text for each in ("secret", "Lovelace") for text in (after, "".join(pages)))


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_conversation_in_use_is_left_and_named(opened, kind):
    async with opened(kind) as stored:
        await stored.wait(ANA, "mine", 2)
        claim = await stored.runs.claim(HERE, "a service", 10)
        done = await erase(ANA.id, stored.logs, stored.runs)
        assert (done.messages, list(done.kept)) == (0, [HERE])
        await stored.runs.write(HERE, claim.token, StateChanges(run={"id": "interrupted"}))
        await stored.runs.release(HERE, claim.token, None)
        assert "unfinished" in (await erase(ANA.id, stored.logs, stored.runs)).kept[HERE]
        assert await stored.texts(ANA) == [("mine", "pending")]


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_damaged_conversation_is_named_and_the_others_are_erased(opened, kind):
    store = opened(kind)
    async with store as stored:
        for number, place in enumerate(("T:C:1.0", "T:C:2.0", "T:C:3.0")):
            await stored.wait(ANA, "mine", number, place)
        damage_inbox(store.url, "T:C:2.0")
        assert await stored.texts(ANA) == [("mine", "pending")] * 2
        done = await erase(ANA.id, stored.logs, stored.runs)
        assert (done.messages, list(done.kept)) == (2, ["T:C:2.0"])
        assert "T:C:2.0 is damaged: restore it from a backup" in done.kept["T:C:2.0"]
        assert await stored.texts(ANA) == []


async def test_a_service_goes_on_after_the_erasure_of_a_person(  # noqa: PLR0917 - fixtures
    slack, environment, model, model_env, config_file, tmp_path
):
    path, ana, ben = config_file(FILE), slack.as_person("ana"), slack.as_person("ben")
    options = ("--config", str(path))
    store = {"AMPLIFIER_SLACK_STORE": f"sqlite:{tmp_path}/kept.db"}
    async with environment.serving(*options, **model_env) as service:
        await service.says("service.ready")
        root = await ana.say("general", "@alpha my number is zq4711zq")
        await slack.until(lambda _: len(environment.said(root)) == 1 and environment.found(root, "fine"))
        await ben.say("general", "@alpha I have 4712", thread=root)
        await slack.until(lambda _: sum(said == "fine" for said in environment.said(root)) == 2)
        exported = await run_command("people", "export", "U0ANA", *options, env=store)
        assert json.loads(exported.output.splitlines()[0])["text"] == "my number is zq4711zq"
        await service.says("run.ended")
        erased = await run_command("people", "erase", "U0ANA", "--yes", *options, env=store)
        assert erased.code == 0, erased.output
        assert "Erased 1 message of U0ANA in 1 conversation." in erased.output
        assert f"Store: {store['AMPLIFIER_SLACK_STORE']}" in erased.output
        await ben.say("general", "and now?", thread=root)
        await slack.until(lambda _: sum(said == "fine" for said in environment.said(root)) == 3)
        asked = json.dumps(model.bodies[-1])
        assert ("zq4711zq" in asked, "4712" in asked, "someone (erased)" in asked) == (False, True, True)
        assert await service.ended(signal.SIGTERM) == 0
    entry = json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[-1])
    assert (entry["kind"], entry["fields"]) == (
        "people.erased",
        {"user": "U0ANA", "messages": 1, "conversations": 1},
    )
    shown = await run_command("conversations", "show", root, *options, env=store)
    assert "1 messages of U0ANA were erased" in shown.output
    assert b"zq4711zq" not in (tmp_path / "kept.db").read_bytes()


async def test_the_ratings_of_a_person_lose_their_name_and_comment(opened):
    async with opened("sqlite") as stored:
        await stored.deliver((ANA, "one", 1))
        key, rating = stored.stack.key, FeedbackState("r1", "T:C:1.5", "", ANA.id, -1, 10.0, "It is wrong.")
        await rate(stored.logs, key, rating)
        await rate(stored.logs, key, replace(rating, id="r2", user=BEN.id, comment="No."))
        await erase(ANA.id, stored.logs, stored.runs)
        found = [entry.state async for entry in feedback(stored.logs, key)]
    ratings = [state for state in found if isinstance(state, FeedbackState)]
    assert [(each.user, each.reward, each.comment) for each in ratings] == [("", -1, ""), (BEN.id, -1, "No.")]


def worker_of(user):
    return Worker(f"w{user}", f"{HERE}:w{user}", HERE, "run", "alpha", "", "Call my doctor", user, 1.0)


async def test_the_record_of_a_worker_that_was_never_ordered_is_deleted(opened):
    async with opened("sqlite") as stored:
        await stored.deliver((ANA, "begin", 1))
        worker = worker_of(ANA.id)
        await stored.runs.put_document(f"workers:{HERE}", worker.id, {**asdict(worker), "instruction": "secret"})
        await erase(BEN.id, stored.logs, stored.runs)
        assert len(await stored.runs.documents(f"workers:{HERE}")) == 1
        await erase(ANA.id, stored.logs, stored.runs)
        assert await stored.runs.documents(f"workers:{HERE}") == {}


@pytest.mark.parametrize("is_left", [True, False], ids=["conversation", "no conversation"])
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_what_is_kept_of_a_person_outside_of_conversations_is_exported_and_deleted(opened, kind, is_left):
    async with opened(kind) as stored:
        runs = stored.runs
        documents = retrying(runs, StoreRetryPolicy())
        schedules, memory = StoredSchedules(documents), ChannelMemory(documents)
        if is_left:
            await stored.deliver((ANA, "begin", 1))
        for user in (ANA.id, BEN.id):
            await schedules.add(HERE, user, "alpha", "0 9 * * 1 call my doctor", f"call of {user}")
            await memory.add("T:C", f"the doctor of {user}", user, user)
            await runs.put_document("always:T", user, {"tool": "a", "instance": "alpha", "by": user})
            await runs.put_document(f"home:T:{user}", "opened", {"at_s": 1.0})
            await runs.put_document(f"accounts:T:{user}", "a", {"server": "tracker", "at_s": 1, "sealed": user})
            worker = worker_of(user)
            await runs.put_document(f"workers:{HERE}", worker.id, asdict(worker))
        kept = [
            ("An account of tracker is connected.", "connected"),
            ("call my doctor", "scheduled"),
            (f"the doctor of {ANA.id}", "remembered"),
        ]
        assert (await stored.texts(ANA))[-3:] == kept
        assert (await erase(ANA.id, stored.logs, runs)).messages == 2 + is_left
        assert await stored.texts(ANA) == []
        assert len(await stored.texts(BEN)) == 3
        collections = sorted(await runs.collections())
        of_ben = [
            f"accounts:T:{BEN.id}",
            "always:T",
            f"home:T:{BEN.id}",
            "memory:T:C",
            "schedules:T",
            f"workers:{HERE}",
        ]
        assert collections == of_ben
        documents = [await runs.documents(each) for each in collections]
        assert [len(each) for each in documents] == [1] * len(documents)
        assert ANA.id not in str(documents)
