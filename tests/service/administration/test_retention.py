from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import asdict, replace

import pytest
from store_corruption import damage_inbox
from structlog.testing import capture_logs

from connector.protocols import InboxEntry, StateChanges, Worker
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import AssistantMessageState, UserMessageState
from service.administration.retention import Retention
from service.config.config import RetentionConfig, WorkspaceConfig
from service.sessions.workspaces import Workspaces
from service.store import open_log_store, open_run_store

DAY_S = 86_400.0


class Interleaved:
    """A log store that does a step before each log is read."""

    def __init__(self, store, step):
        self._store = store
        self._step = step

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def load(self, key):
        await self._step(key)
        return await self._store.load(key)


class Stored:
    """Conversations in both stores, with files."""

    def __init__(self, runs, logs, workspaces):
        self.runs = runs
        self.logs = logs
        self.workspaces = workspaces
        self.audited = []

    async def add(self, conversation_id, *, agents=("alpha",), kind="message", left=None, hold=False, run=None):
        """Store a conversation whose only entry is closed, unless it is `left` in the inbox."""
        for agent in agents:
            await InteractionStack(self.logs, conversation_id, agent).push(
                UserMessageState("hello"), AssistantMessageState("yes")
            )
        root = conversation_id.partition("/")[0]
        await self.workspaces.prepare(root)
        if root != conversation_id:
            return
        await self.runs.admit(root, InboxEntry(f"{root}1", kind, {}), "alpha")
        claim = await self.runs.claim(root, "owner", 10)
        closed = {} if left else {1: ""}
        await self.runs.write(root, claim.token, StateChanges(run=run, closed=closed, held_seq=1 if hold else None))
        await self.runs.release(root, claim.token, None)

    async def left(self):
        """Return the conversations of which anything is left."""
        logs = {key.conversation_id for key in await self.logs.keys()}
        return (
            logs | set(await self.runs.conversations()) | {each.name for each in self.workspaces._config.root.iterdir()}
        )

    async def after(self, passed_days, step=None, **config):
        """Let the time pass and delete; `step(retention, key)` runs before each log is read."""

        def record(kind, **fields):
            self.audited.append((kind, fields))

        logs = self.logs if step is None else Interleaved(self.logs, lambda key: step(retention, key))
        retention = Retention(RetentionConfig(**config), self.runs, logs, self.workspaces, record)
        await retention.delete_expired(time.time() + passed_days * DAY_S)
        return sorted({each.replace("-", ":").partition("/")[0] for each in await self.left()})


@pytest.fixture
async def stored(url, tmp_path):
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
    await workspaces.check()
    async with aclosing(await open_run_store(url)) as runs, aclosing(await open_log_store(url)) as logs:
        yield Stored(runs, logs, workspaces)


async def test_old_conversations_are_deleted_by_channel_with_all_that_belongs_to_them(stored):
    for each in ("T:C0SHORT:1.0", "T:C0SHORT:1.0/x", "T:C0OTHER:2.0"):
        await stored.add(each, agents=("alpha", "beta"))
    every = ["T:C0OTHER:2.0", "T:C0SHORT:1.0"]
    config = {"days": 90, "channels": {"C0SHORT": 7}}
    assert await stored.after(100) == every, "nothing is deleted by default"
    assert await stored.after(6, **config) == every
    with capture_logs() as lines:
        assert await stored.after(8, **config) == ["T:C0OTHER:2.0"]
    assert [(line["event"], line["conversations"]) for line in lines] == [("retention.deleted", 1)]
    assert stored.audited == [("retention.deleted", {"conversations": 1})]
    assert await stored.after(8, channels={"C0SHORT": 7}) == ["T:C0OTHER:2.0"]
    assert await stored.after(91, **config) == []


async def test_conversations_with_a_run_or_pending_messages_are_kept(stored):
    await stored.add("T:C:1.0", run={"id": "r"})
    await stored.add("T:C:2.0", left=True)
    await stored.add("T:C:3.0", left=True, hold=True)
    await stored.add("T:C:4.0")
    await stored.runs.claim("T:C:4.0", "another process", 1000 * DAY_S)
    await stored.add(
        "T:C:5.0", kind="note", left=True, hold=True
    )  # of a worker: only a later message would bring it up
    every = ["T:C:1.0", "T:C:2.0", "T:C:3.0", "T:C:4.0"]
    assert await stored.after(30, days=1) == every
    assert len(await stored.logs.keys()) == 4


@pytest.mark.parametrize(("entry", "run"), [("::w000001.order", None), ("::a further message", {"id": "r"})])
async def test_the_workers_of_a_thread_go_with_it_and_keep_its_files_while_they_work(stored, entry, run):
    thread = "T:C:1.0"
    await stored.add(thread)
    at_work = Worker("w000001", f"{thread}:w000001", thread, "run", "alpha", "", "Count", "U1", 1.0)
    ended = replace(at_work, id="w000002", conversation_id=f"{thread}:w000002", status="success", ended_s=2.0)
    never_ordered = replace(at_work, id="w000003", conversation_id=f"{thread}:w000003")
    for each in (at_work, ended, never_ordered):
        await stored.runs.put_document(f"workers:{thread}", each.id, asdict(each))
    place = at_work.conversation_id
    await stored.runs.admit(place, InboxEntry(f"{place}{entry}", "message", {}), "alpha")
    claim = await stored.runs.claim(place, "owner", 10)
    await stored.runs.write(place, claim.token, StateChanges(run=run))
    assert await stored.after(100, days=30) == [thread, place]
    await stored.runs.put_document(f"workers:{thread}", at_work.id, asdict(replace(at_work, ended_s=3.0)))
    assert await stored.after(100, days=30) == [place]
    assert await stored.runs.documents(f"workers:{thread}") == {}


async def test_a_pass_uses_one_configuration(stored):
    await stored.add("T:C:1.0")
    await stored.add("T:C:2.0")

    async def reload(retention, _):
        retention.config = RetentionConfig(days=30)

    assert await stored.after(100, reload, days=90) == []


async def test_a_conversation_that_another_process_takes_over_keeps_the_rest(stored):
    names = ["T:C:1.0", "T:C:2.0", "T:C:3.0"]
    for each in names:
        await stored.add(each, agents=("alpha", "beta"))

    async def take_over(_, key):
        record = await stored.runs.record(key.conversation_id)
        if key == Key("T:C:2.0", "alpha") and record.is_owned:
            claim = await stored.runs.claim(key.conversation_id, record.owner, 10)  # the lease of that pass is over
            await stored.logs.fence(key, claim.token)

    assert await stored.after(30, take_over, days=1) == ["T:C:2.0"]
    assert await stored.logs.keys() == [Key("T:C:2.0", "alpha")]
    assert stored.workspaces.folder("T:C:2.0").is_dir()


async def test_a_damaged_conversation_does_not_keep_the_others(stored, url):
    for each in ("T:C:1.0", "T:C:2.0"):
        await stored.add(each)
    damage_inbox(url, "T:C:1.0")
    with capture_logs() as lines:
        assert await stored.after(30, days=1) == ["T:C:1.0"]
    assert [line["conversation"] for line in lines if line["event"] == "conversation.damaged"] == ["T:C:1.0"]
