"""Each defect of the service or its stores is detected in some seeds, by the expected invariant."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from simulated.service import Parts, run
from simulated.service.agent import Tool
from simulated.service.invariants import DELAYS
from simulated.service.replica import Sessions, Slots
from simulated.service.run_table import Conversation, RunTable
from simulated.service.store_observer import OTHER_TEAM

from connector.protocols import NO_TALK, MessageAuthor, PersonAnswer, StateChanges
from connector.runs.background_tasks import BackgroundTasks
from connector.slack_api.client import SlackClient, ThreadHistory
from connector.slack_api.errors import SlackCallFailed
from orchestrator_interactive.interactions.states import RunFinishedState
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import events
from service.heartbeats import Heartbeats
from service.runs import StoredRuns
from service.schedules.stored import StoredSchedules
from service.sessions.budgets import StoredBudgets
from service.sessions.workers import StoredWorkers
from service.store.base import Admission


@dataclass(frozen=True)
class Defect:
    """`violation` is a part of the expected one. If few seeds detect the defect, `seeds` are some that do."""

    violation: str
    parts: Parts
    seeds: tuple[int, ...] = ()


def defect(violation: str, *features: str, seeds: tuple[int, ...] = (), without: Any = (), **parts: Any) -> Defect:
    return Defect(violation, Parts(features=frozenset(features), without=frozenset(without), **parts), seeds)


def override(base: type, **members: Any) -> Any:
    return type("Defective", (base,), members)


table = partial(override, RunTable)
client = partial(override, SlackClient)
sessions = partial(override, Sessions)
slots = partial(override, Slots)


# Heartbeats.


async def hear_nobody(self):
    return [owner for owner in await self._store.beat(self._owner) if owner != self._owner]


def end_renewed_leases(self, owner, _unrenewed_s):
    return RunTable.end_leases(self, owner, 0.0)


async def renew_nothing(_self):
    await asyncio.Event().wait()


# Streams.


async def ignore_failures(self, method, arguments, slot, confirm=None):
    try:
        return await SlackClient.try_once(self, method, arguments, slot, confirm)
    except SlackCallFailed:
        if method != "chat.stopStream":
            raise
        return {}


async def delete_nothing_blank(self, channel, ts, run=""):
    if (found := await self.history.message(channel, ts)) is None or found.get("text"):
        await SlackClient.delete(self, channel, ts, run)


async def share_nothing(self, method, arguments, slot, **more):
    if method == "files.completeUploadExternal":
        return {}
    return await SlackClient.call(self, method, arguments, slot, **more)


# Approvals.


class _Wrapped:
    """The people of a run, with some methods replaced."""

    def __init__(self, people, **methods):
        self._people = people
        vars(self).update(methods)

    def __getattr__(self, name):
        return getattr(self._people, name)


def wrapping(**methods):
    def people(self, key):
        found = Sessions._people(self, key)
        return found and _Wrapped(found, **{name: partial(method, found) for name, method in methods.items()})

    return people


async def allow(_people, _request):
    return PersonAnswer("click", (0,), ("UANN",), ("uann",))


async def begin_at_once(_people, _request_id, _digest, *, repeatable=False):
    return None


approves_itself = wrapping(ask=allow)
stores_no_beginning = wrapping(start=begin_at_once)


async def drop_nothing(*_):
    pass


def inject_without_files(self, *given, files=(), **more):
    return Sessions.inject(self, *given, **more)


class Every:
    def __contains__(self, _request_id):
        return True


def of_all(make):
    def people(self, key):
        if found := make(self, key):
            found.unbegun = Every()
        return found

    return people


repeats_begun_calls = of_all(stores_no_beginning)


async def update_no_request(self, channel, ts, compose, slot):
    if not compose().text.startswith(("✋ Allow", "❓")):
        await SlackClient.update(self, channel, ts, compose, slot)


# The run store.


def lose_every_third(self, conversation_id, entry, agent, facts=None):
    admission = RunTable.admit(self, conversation_id, entry, agent, facts)
    found = self.conversations[conversation_id]
    if admission.is_new and entry.kind == "message" and len(found.order) % 3 == 0:
        del found.waiting[len(found.order)]
    return admission


def forget_id(self, conversation_id, entry, agent, facts=None):
    self.conversations.setdefault(conversation_id, Conversation()).ends.pop(entry.id, None)
    return RunTable.admit(self, conversation_id, entry, agent, facts)


def forget_changes(self, conversation_id, entry, agent, facts=None):
    facts = {name: ts for name, ts in (facts or {}).items() if not name.startswith("changed:")}
    return RunTable.admit(self, conversation_id, entry, agent, facts)


def lose_overtaking(kind):
    """Lose the entry that an edit or a deletion stores under the id of its message, which is still on its way."""

    def admit(self, conversation_id, entry, agent, facts=None):
        if entry.kind == kind and entry.data.get("edited_ts") and ":" not in entry.id.partition(".")[2]:
            return Admission(is_new=False, owner=None)
        return RunTable.admit(self, conversation_id, entry, agent, facts)

    return table(admit=admit)


def change_stops(change):
    def admit(self, conversation_id, entry, agent, facts=None):
        entry = replace(entry, data=change(entry.data)) if entry.kind == "stop" else entry
        return RunTable.admit(self, conversation_id, entry, agent, facts)

    return table(admit=admit)


def lose_edits(self, conversation_id, token, after):
    found = self._owned(conversation_id, token)
    for seq in [seq for seq, entry in found.waiting.items() if entry.kind == "edit" and seq > found.held_seq]:
        found.ends[found.waiting.pop(seq).id] = "done"
    return RunTable.fetch(self, conversation_id, token, after)


def lose_stops(self, conversation_id, token, after):
    entries = RunTable.fetch(self, conversation_id, token, after)
    self.write(conversation_id, token, StateChanges(closed={e.seq: "done" for e in entries if e.kind == "stop"}))
    return tuple(each for each in entries if each.kind != "stop")


def change_claims(change, **members):
    def claim(self, conversation_id, owner, lease_s):
        claim = RunTable.claim(self, conversation_id, owner, lease_s)
        return claim and change(self.conversations[conversation_id], claim)

    return table(claim=claim, **members)


def lose_run(found, claim):
    found.run = None
    return replace(claim, run=None, posts={})


def waiting_anywhere(self, _workspace, most):
    return [name for name, found in self.conversations.items() if found.waiting and self.owner_of(found) is None][:most]


def renew_without_news(self, conversation_id, token, lease_s):
    RunTable.renew(self, conversation_id, token, lease_s)
    return 0


def keep_lease(self, conversation_id, token, _seen, _due_in_s):
    self._owned(conversation_id, token).expires_s = 10**9
    return True


def claim_for_anyone(self, conversation_id, owner, lease_s):
    self.conversations.setdefault(conversation_id, Conversation()).owner = owner
    return RunTable.claim(self, conversation_id, owner, lease_s)


GIVES_LEASES_TO_ANYONE = table(
    claim=claim_for_anyone,
    due=lambda self, _workspace, most: [name for name, c in self.conversations.items() if c.has_work][:most],
    _owned=lambda self, conversation_id, _token: self.conversations[conversation_id],
)


def change_writes(change):
    def write(self, conversation_id, token, changes):
        RunTable.write(self, conversation_id, token, change(self.conversations[conversation_id], changes))

    return table(write=write)


def lose_cleanup(_found, changes):
    return replace(changes, run={}) if changes.run is not None and "id" not in changes.run else changes


def lose_end(_found, changes):
    return replace(changes, run={**changes.run, "is_over": False}) if changes.run else changes


def lose_held(_found, changes):
    held_seq = None if "done" in changes.closed.values() else changes.held_seq
    return replace(changes, held_seq=held_seq, stopped_s=None)


def lose_held_at_the_end(_found, changes):
    return replace(changes, held_seq=None) if changes.run is not None and "id" not in changes.run else changes


def withdraw_held(found, changes):
    record = found.run or {}
    first = record.get("first", {}).get("seq", 0)
    if record.get("stopped_by") is not None and changes.deletes_posts and first not in changes.closed:
        return replace(changes, closed={**changes.closed, first: "withdrawn"})
    return changes


# The log store.


async def commit_without_fence(self, key, change):
    self._fences.pop(key, None)
    log = await self.load(key)
    await MemoryStore.commit(self, key, replace(change, version=log.version if log else 0))


async def no_fence(_self, _key, _token):
    """Accept every token."""


async def commit_without_answers(self, key, change):
    await MemoryStore.commit(self, key, change)
    if any(node.envelope["t"] == "AssistantMessageState" for node in change.nodes):
        for node in change.nodes:
            self._nodes[key].pop((node.segment, node.index), None)


# The Slack client.


def history(**members):
    def init(self, *given):
        SlackClient.__init__(self, *given)
        self.history = override(ThreadHistory, **members)(self.call)

    return client(__init__=init)


async def posts_without_metadata(self, place, slot=None, oldest=""):
    async for message in ThreadHistory.posts(self, place, slot, oldest):
        yield {**message, "metadata": None}


async def no_newer_messages(self, place, slot=None, oldest=""):
    async for message in ThreadHistory.messages(self, place, slot, oldest):
        if not oldest:
            yield message


async def nothing(*_given, **_options):
    """Do nothing, and return None."""


async def react_without_eyes(self, channel, ts, name, *more):
    if name != "eyes":
        await SlackClient.react(self, channel, ts, name, *more)


def posts(change):
    """`change` returns the content to post, or None."""

    async def post(self, place, content, key, persona=None, **options):
        content = change(place, content, key, persona)
        return "1.0" if content is None else await SlackClient.post(self, place, content, key, persona, **options)

    return client(post=post)


def notices_without(pattern, instead=""):
    def change(_place, content, _key, persona):
        text = content.text if persona else re.sub(pattern, instead, content.text)
        return replace(content, text=text) if text.strip() else None

    return posts(change)


def no_stop_before_a_run(place, content, key, _persona):
    return None if key.startswith(place.team) and content.text.startswith("🛑") else content


async def post_without_confirmation(self, place, content, key, persona=None, **options):
    return await SlackClient.post(self, place, content, key, persona, **{**options, "confirm": None})


async def post_the_first_later(self, place, content, key, persona=None, **options):
    def post_later():
        self.later = asyncio.ensure_future(SlackClient.post(self, place, content, f"{key}!", persona))

    if persona is not None and ":1:" in key:
        asyncio.get_running_loop().call_later(8, post_later)
        return "1.0"
    return await SlackClient.post(self, place, content, key, persona, **options)


# Sessions, runs, tools and slots.


def swap_steers(self, *given, **more):
    (_, conversation_id, _), steer = given, (given, more)
    held = self.__dict__.setdefault("steers", {})
    if (first := held.pop(conversation_id, None)) is None:
        held[conversation_id] = steer
        return True
    taken = [Sessions.inject(self, *each, **options) for each, options in (steer, first)]
    return all(taken)


def everyone_takes_part(self, conversation_id):
    found = RunTable.thread_of(self, conversation_id)
    return replace(found, latest={**found.latest, **{f"person:{each}": "0" for each in ("UANN", "UBEN", "UCAM")}})


def without_exchanges(self, conversation_id):
    found = RunTable.thread_of(self, conversation_id)
    return replace(found, latest={name: ts for name, ts in found.latest.items() if not name.startswith("exchange:")})


async def execute_with_talk_twice(self, *given, **more):
    talk = more.get("talk", NO_TALK)
    return await Sessions.execute(
        self, *given, **{**more, "talk": replace(talk, messages=(*talk.messages, *talk.messages))}
    )


async def execute_without_a_time(self, *given, **more):
    return await Sessions.execute(self, *given, **{**more, "written_s": None})


async def execute_without_notes(self, *given, **more):
    return await Sessions.execute(self, *given, **{**more, "notes": None})


async def execute_with_notes_in_the_run(self, *given, **more):
    """Give the notes to the run like messages."""
    notes, execute = more.pop("notes"), asyncio.create_task(Sessions.execute(self, *given, **more))
    author = MessageAuthor("U1", "Code")
    while notes and not execute.done():
        await asyncio.sleep(0.02)
        for note_id, text in notes.items():
            Sessions.inject(self, *given[:2], text, message_id=note_id, author=author, written_s=9e9)
    return await execute


class WithoutResults:
    """A model that gets no tool results."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        return getattr(self.model, name)

    async def complete(self, request, **options):
        rows = [message for message in request.messages if message.role != "tool"]
        return await self.model.complete(request.model_copy(update={"messages": rows}), **options)


async def new_session_without_results(self, key):
    session = await Sessions._new_session(self, key)

    async def wrap_the_model(_event, _data):
        model = session.coordinator.get("providers", "model")
        session.coordinator.mount("providers", WithoutResults(model), name="model")
        return HookResult()

    for event in (events.SESSION_START, events.SESSION_RESUME):
        session.coordinator.hooks.register(event, wrap_the_model)
    return session


async def new_session_with_two_ends(self, key):
    session = await Sessions._new_session(self, key)

    async def end_again(_event, _data):
        await session.coordinator.get_capability("interactions.stack").push(RunFinishedState())
        return HookResult()

    session.coordinator.hooks.register(events.EXECUTION_END, end_again)
    return session


async def exit_and_leave_a_task(self, *error):
    await Sessions.__aexit__(self, *error)
    self.left = asyncio.create_task(asyncio.sleep(1000), name="left")


async def never_answer(*_given, **_options):
    await asyncio.get_running_loop().create_future()


def watch_every_workspace(self, workspace, work):
    for each in (workspace, OTHER_TEAM):
        end = StoredRuns.watch(self, each, work)
    return end


def repeatable(self, agents, conversation, name, *, is_side_effect_free):
    Tool.__init__(self, agents, conversation, name, is_side_effect_free=True)


def enter_without_a_slot(self, conversation_id, message, *, is_resumed=False):
    ticket = Slots.enter(self, conversation_id, message, is_resumed=is_resumed)
    self.tickets.pop(conversation_id, None)
    ticket.is_granted = ticket.is_shown = True
    return ticket


# Workers.


def lose_reports(self, conversation_id, entry, agent=None, facts=None):
    if entry.id.startswith("note:") and "::w" in entry.id:
        return Admission(is_new=True, owner=None)
    return RunTable.admit(self, conversation_id, entry, agent, facts)


def repeat_reports(self, conversation_id, entry, agent=None, facts=None):
    if entry.id.startswith("note:") and "::w" in entry.id:
        RunTable.admit(self, conversation_id, replace(entry, id=f"note:again:{entry.id}"), agent, facts)
    return RunTable.admit(self, conversation_id, entry, agent, facts)


async def order_nothing(self, worker, _arguments):
    return {"id": worker.id, "title": worker.title}


async def store_another_worker(self, key, asker, arguments):
    retried = {**arguments, "call_id": f"{arguments['call_id']}.{self._now_s()}"}
    worker = await StoredWorkers._stored(self, key, asker, retried)
    collection = f"workers:{key.conversation_id}"
    document = (await self._store.documents(collection))[worker.id]
    await self._store.put_document(collection, worker.id, {**document, "call": arguments["call_id"]})
    return worker


async def no_workers(self, _conversation_id):
    return ()


workers = partial(override, StoredWorkers)


# Schedules.


async def forget_before_it_fires(self, stored, schedule):
    return await StoredSchedules.replace(self, stored, schedule.over(self.now_s()))


async def earlier(self, team):
    found = await StoredSchedules.stored(self, team)
    return [each._replace(schedule=replace(each.schedule, due_s=each.schedule.due_s - 3)) for each in found]


async def add_another(self, *given, zone=""):
    *parts, call = given
    return await StoredSchedules.add(self, *parts, f"{call}.{self.now_s()}", zone=zone)


schedules = partial(override, StoredSchedules)
budgets = partial(override, StoredBudgets)
FAULTS_OF_BUDGETS = ("kills", "terminations", "pauses", "store outages", "flaky store", "slow store")


async def reserve_nothing(_self, _key, _arguments):
    """Reserve nothing for a call, so that it is not settled."""
    return {}


async def settle_nothing(_self, _key, _arguments):
    """Leave a call as it is reserved."""
    return {}


DEFECTS = {
    "the store loses accepted messages": defect("must have one outcome", table=table(admit=lose_every_third)),
    "an event is acknowledged before it is stored": defect(
        "was acknowledged and is lost", "kills", "slow store", acknowledges_early=True, seeds=(12,)
    ),
    "an existing thread is not read after a mention": defect(
        *("was acknowledged and is lost", "existing threads", "no look-ups", "kills"),
        client=history(messages=no_newer_messages),
        seeds=(66,),
    ),
    "the store does not detect duplicates": defect("rows.", "doubled events", table=table(admit=forget_id)),
    "the loop gets the newer of two messages first": defect(
        "which was written and accepted earlier",
        "urgent steers",
        sessions=sessions(inject=swap_steers),
        seeds=(112, 36),
    ),
    "a prompt is read before older messages that wait": defect(
        *("which is older and was waiting", "few slots", "late events"),
        without=DELAYS | {"short queue"},
        sessions=sessions(execute=execute_without_a_time),
        seeds=(61,),
    ),
    "a run does not read the notes before it": defect(
        "did not read it", "notes", without=DELAYS, sessions=sessions(execute=execute_without_notes)
    ),
    "a run reads notes like messages": defect(
        "was read during a run", "notes", sessions=sessions(execute=execute_with_notes_in_the_run)
    ),
    "a note is not posted": defect("is in the thread 0 times", "notes", client=notices_without("^📝 .*")),
    "a message does not wait for older ones": defect(
        *("which was acknowledged when", "existing threads", "late events", "slow Slack", "failing Slack"),
        without=("kills", "pauses", "two conversations", "heartbeats"),
        tasks=partial(BackgroundTasks, older_first_s=0.0),
        seeds=(1133,),
    ),
    "the store loses edits": defect("is the last accepted one", "edits", table=table(fetch=lose_edits)),
    "a deletion that overtakes its message has no effect": defect(
        *("was read after its deletion", "deletions", "late events"),
        without=DELAYS,
        table=lose_overtaking("withdrawal"),
        seeds=(189, 381),
    ),
    "an edit that overtakes its message has no effect": defect(
        *("was read after version", "edits", "late events"),
        without=DELAYS,
        table=lose_overtaking("message"),
        seeds=(230, 191),
    ),
    "the store loses runs": defect("has not ended", "kills", table=change_claims(lose_run)),
    "the store marks pending posts as made": defect(
        *("is not in the thread", "kills", "slow Slack"),
        table=change_claims(lambda _, claim: replace(claim, posts=dict.fromkeys(claim.posts, ""))),
        seeds=(9,),
    ),
    "the store loses what a stop holds back": defect(
        *("began without a cause", "stops"),
        table=change_claims(lambda _, claim: replace(claim, held_seq=0), due=waiting_anywhere),
        seeds=(1734, 2334),
    ),
    "the store forgets the time of the last stop": defect(
        *("began without a cause", "stops", "late events", "kills"),
        table=change_claims(lambda _, claim: replace(claim, stopped_s=0.0)),
        seeds=(64,),
    ),
    "the store reports no work": defect("still has work", "kills", table=table(due=lambda *_: [])),
    "the store wakes no process": defect(
        "still has work",
        table=table(
            renew=renew_without_news,
            release=lambda self, conversation_id, token, _seen, *due: RunTable.release(
                self, conversation_id, token, None, *due
            ),
            due=lambda *_: [],
            _notify=lambda *_: None,
        ),
    ),
    "a lease is not released": defect("still belongs to", table=table(release=keep_lease)),
    "a delivered message counts as refused": defect(
        "was refused without a reason",
        table=change_writes(lambda _, c: replace(c, closed={seq: end or "refused" for seq, end in c.closed.items()})),
    ),
    "pending cleanup is lost": defect("is left", "kills", table=change_writes(lose_cleanup), seeds=(12,)),
    "the end of a run is lost": defect(
        *("no later notice counts it", "kills", "permanent model errors"),
        table=change_writes(lose_end),
        seeds=(1138, 241),
    ),
    "a stop holds nothing back": defect(
        "began without a cause", "stops", "kills", table=change_writes(lose_held), seeds=(82, 79)
    ),
    "the end of a run does not store what its notice counts": defect(
        "existed, and was posted again", "kills", table=change_writes(lose_held_at_the_end), seeds=(91,)
    ),
    "a held message is lost": defect(
        *("was held back, and a later stop", "stops", "slow store", "impatient people"),
        table=change_writes(withdraw_held),
        without=("reloads",),
        seeds=(1389, 1625, 1708),
    ),
    "a stop is older than the run": defect(
        *("was stopped without a stop for it", "stops", "flaky store", "slow store", "late events"),
        table=change_stops(lambda data: {**data, "at": "9999999999.000000"}),
        seeds=(1159, 1563),
    ),
    "an unknown outcome is not posted": defect(
        "and no notice names it", "kills", client=notices_without("Outcome unknown: [^.]*[.]"), seeds=(20,)
    ),
    "a stop notice does not count held messages": defect(
        *("is pending, and no later notice counts it", "stops"),
        client=notices_without(r"(📨 )?\d+ messages? (has|have) not been read yet.*"),
        seeds=(16,),
    ),
    "a stop notice does not count finished calls": defect(
        *("have finished; notice", "stops"),
        client=notices_without(r"\d+ tool calls? finished[^.]*[.]"),
        seeds=(4,),
    ),
    "a stop notice names no user": defect(
        "was stopped by", "stops", client=notices_without(r"Stopped by \w+", "Stopped by somebody"), seeds=(4,)
    ),
    "a stop looks like an end": defect(
        "users do not see how", "stops", client=notices_without("^🛑 .*", "Done."), seeds=(4,)
    ),
    "a failure looks like an end": defect(
        "users do not see how", "permanent model errors", client=notices_without("^⚠️ .*", "Done.")
    ),
    "a stop without a run gets no reply": defect(
        "a stop without an active run", "stops", client=notices_without("^Nothing is running here[.]"), seeds=(20,)
    ),
    "a message is stopped before its run without a reply": defect(
        "was stopped before it was read", "stops", "kills", client=posts(no_stop_before_a_run), seeds=(77,)
    ),
    "a former owner posts": defect(
        *("s after a takeover", "pauses", "replicas", "failing Slack", "low rate limits"),
        client=client(post=post_without_confirmation),
        seeds=(695, 296),
    ),
    "an older edit replaces a newer one": defect(
        *("is the last accepted one", "edits", "late events", "kills"),
        without=("existing threads", "few slots", "other workspace", "low rate limits", "stops"),
        table=table(admit=forget_changes),
    ),
    "calls of a dead process are not awaited": defect(
        *("is left", "kills", "orphaned calls", "slow Slack"),
        tasks=partial(BackgroundTasks, calls_late_s=0.0),
        seeds=(687, 696),
    ),
    "a second stop has no effect": defect(
        *("had to end at once", "stops"),
        sessions=sessions(stop=lambda self, instance, conversation, **_: Sessions.stop(self, instance, conversation)),
        seeds=(410,),
    ),
    "a stop applies to any run": defect(
        *("was stopped without a stop for it", "stops", "slow store"),
        table=change_stops(lambda data: {name: value for name, value in data.items() if name not in ("ts", "run")}),
        seeds=(45,),
    ),
    "leases and logs accept every process": defect(
        *("which another process owns", "replicas"),
        table=GIVES_LEASES_TO_ANYONE,
        logs=override(MemoryStore, commit=commit_without_fence, fence=no_fence),
    ),
    "the model gets no results": defect(
        "A provider would refuse", sessions=sessions(_new_session=new_session_without_results)
    ),
    "the end of a run is recorded twice": defect(
        "has not one end for each run", sessions=sessions(_new_session=new_session_with_two_ends)
    ),
    "the log loses answers": defect("and not in the log", logs=override(MemoryStore, commit=commit_without_answers)),
    "the outbox does not look up posts": defect(
        *("existed, and was posted again", "failing Slack"),
        client=history(posts=posts_without_metadata),
        seeds=(0,),
    ),
    "texts are not posted": defect(
        "is not in the thread", client=posts(lambda _place, content, _key, persona: None if persona else content)
    ),
    "texts have another order": defect("; the thread has", client=client(post=post_the_first_later), seeds=(5,)),
    "a status message is left": defect("is left.", client=client(delete=nothing)),
    "a reaction is left": defect("An hourglass is left", client=client(unreact=nothing)),
    "the eyes reaction is missing": defect(
        "was delivered, and its reactions are", without=DELAYS, client=client(react=react_without_eyes)
    ),
    "a tool with side effects is repeated": defect(
        "was executed 2 times", "kills", tool=override(Tool, __init__=repeatable), seeds=(77,)
    ),
    "a stop does nothing": defect("was stopped at", "stops", sessions=sessions(stop=lambda *_, **__: True), seeds=(4,)),
    "a stop is lost": defect("got a stop at", "stops", without=DELAYS, table=table(fetch=lose_stops), seeds=(8,)),
    "a process leaves a task": defect(
        "and left this task", "terminations", sessions=sessions(__aexit__=exit_and_leave_a_task)
    ),
    "a process serves every workspace": defect(
        *("whose workspace it is not connected to", "other workspace"),
        runs=override(StoredRuns, watch=watch_every_workspace),
    ),
    "every run gets a slot": defect(
        "which exceeds the limits", "few slots", slots=slots(_has_room=lambda _self, _ticket: True)
    ),
    "a channel has no limit": defect(
        *("which exceeds the limits", "few slots"),
        slots=slots(_has_room=lambda self, ticket: self._running_of[ticket.person] < self._limits.runs_per_person),
    ),
    "a free slot is not granted": defect(
        "waits for a slot, and one is free", "few slots", slots=slots(_next=lambda _self: None)
    ),
    "a living process is believed to be silent": defect(
        *("which is well", "heartbeats", "replicas"),
        without=("pauses", "store outages", "flaky store", "slow store"),
        heartbeats=override(Heartbeats, _silent=hear_nobody),
        table=table(end_leases=end_renewed_leases),
    ),
    "an owner does not renew its leases": defect(
        *("which is well", "replicas"),
        without=("pauses", "store outages", "flaky store", "slow store"),
        runs=override(StoredRuns, _renew_all=renew_nothing),
    ),
    "a run does not wait for its slot": defect("without a slot", "few slots", slots=slots(enter=enter_without_a_slot)),
    "everyone takes part": defect("its author does not take part", table=table(thread_of=everyone_takes_part)),
    "anyone steers": defect("steered a run of", "policies", ignores_policy=True),
    "bots talk without end": defect(
        "answered without a person in between", "bots", table=table(thread_of=without_exchanges), seeds=(105, 114)
    ),
    "a call approves itself": defect(
        "ran without a valid approval", "approvals", sessions=sessions(_people=approves_itself)
    ),
    "a call does not store its beginning": defect(
        "ran before its beginning was stored", "approvals", sessions=sessions(_people=stores_no_beginning)
    ),
    "a call that has begun is made again": defect(
        "was executed 2 times", "approvals", "kills", sessions=sessions(_people=repeats_begun_calls)
    ),
    "buttons stay": defect("are left", "approvals", client=client(update=update_no_request)),
    "a worker's report is lost": defect("was reported 0 times", "workers", table=table(admit=lose_reports)),
    "a worker reports twice": defect("was reported 2 times", "workers", table=table(admit=repeat_reports)),
    "a worker never begins": defect("is lost", "workers", workers=workers(_order=order_nothing)),
    "a repeated call dispatches another worker": defect(
        "has 2 workers", "workers", "kills", workers=workers(_stored=store_another_worker), seeds=(285, 98)
    ),
    "the end of a worker is not kept": defect("has ended, and its", "workers", workers=workers(ended=nothing)),
    "a stop does not reach workers": defect(
        "was stopped at", "workers", "stops", workers=workers(of_thread=no_workers), seeds=(349, 943)
    ),
    "a schedule is forgotten before it fires": defect(
        *("is lost", "schedules", "kills"), schedules=schedules(replace=forget_before_it_fires), seeds=(575, 1099)
    ),
    "a call is not reserved": defect("The budget counts", "budgets", budgets=budgets(_reserve=reserve_nothing)),
    "a call is not settled": defect(
        "are reserved for ever", "budgets", without=FAULTS_OF_BUDGETS, budgets=budgets(_settle=settle_nothing)
    ),
    "a schedule fires too early": defect("too early", "schedules", schedules=schedules(stored=earlier)),
    "a repeated request makes another schedule": defect(
        *("is in the thread 2 times", "schedules", "kills"), schedules=schedules(add=add_another)
    ),
    "files of withdrawn messages stay": defect(
        *("and its file", "files", "deletions"),
        without=("pauses",),
        sessions=sessions(drop_files=drop_nothing),
        seeds=(74, 44),
    ),
    "a message during a run loses its files": defect(
        *("was read without its file", "files"), sessions=sessions(inject=inject_without_files)
    ),
    "a stream that was not stopped counts as complete": defect(
        *("is left", "streams", "failing Slack"), client=client(try_once=ignore_failures)
    ),
    "a blank stream of a killed process stays": defect(
        *("is left", "streams", "kills", "failing Slack"), client=client(delete=delete_nothing_blank)
    ),
    "a shared file is not shown": defect("is in the thread", "shares", client=client(call=share_nothing)),
    "talk is read twice": defect(" times.", "existing threads", sessions=sessions(execute=execute_with_talk_twice)),
    "a session hangs": defect("still has work", sessions=sessions(execute=never_answer)),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_detected(name: str) -> None:
    each = DEFECTS[name]
    seeds = (*each.seeds, *range(1000))
    assert any(each.violation in violation for seed in seeds for violation in run(seed, each.parts).violations)
