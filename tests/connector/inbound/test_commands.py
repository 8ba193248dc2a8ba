"""Who may give a command, and who sees its answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from chat import ALPHA, BETA, Thread

from connector import Instance, Participation
from connector.protocols import ChannelRules, LeftBehind, Worker
from local_slack import HeldUntil


def of(steerers: str) -> Instance:
    return Instance("alpha", ALPHA.persona, Participation(steerers=steerers))


class History:
    """Records the requests of commands."""

    def __init__(self) -> None:
        self.rewinds: list[str] = []
        self.reached, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()

    async def rewind(self, _instance: str, _conversation: str, _to: object, name: str, *, fence: int) -> LeftBehind:
        assert fence > 0
        self.rewinds.append(name)
        self.reached.set()
        await self.may_end.wait()
        return LeftBehind(1, 1, (), name)


@pytest.fixture
def history():
    return History()


def whispers(chat, who: str) -> list[str]:
    user = chat.slack.person(who).id
    return [each.text for each in chat.slack.workspace.whispers(chat.general) if each.only_for == user]


async def whispered(chat, who: str, part: str) -> str:
    return await chat.slack.until(lambda _: next((each for each in whispers(chat, who) if part in each), None))


async def answered(chat):
    thread = await chat.start()
    await thread.run.answer("done")
    await thread.shows("done")
    return thread


@pytest.mark.parametrize(
    ("steerers", "said", "refusal"),
    [
        ("owner", ("ben", "@alpha !rewind"), "Only the person who began this thread"),
        ("participants", ("ben", "@alpha !rewind"), "Only people who take part in this thread"),
        ("participants", ("ana", "!rewind"), ""),
        ("owner", ("ana", "!rewind"), ""),
        ("anyone", ("ben", "!rewind"), ""),
    ],
)
async def test_the_policy_of_steer_decides_who_may_rewind(process, history, steerers, said, refusal):
    async with process(of(steerers), history=history) as chat:
        thread = await answered(chat)
        who, text = said
        await thread.say(text, who=who)
        if refusal:
            await whispered(chat, who, refusal)
            await thread.shows("done")
        else:
            await thread.contains("⏪ Rewound by 1 message and 1 answer.")
        assert len(history.rewinds) == (0 if refusal else 1)


async def test_the_next_owner_repeats_an_interrupted_command_with_the_same_branch_and_answers_once(process, history):
    history.may_end.clear()
    async with process(history=history) as chat:
        thread = await answered(chat)
        await thread.say("!rewind")
        await history.reached.wait()
    history.may_end.set()
    async with process(history=history) as chat:
        thread = Thread(chat, thread.ts)
        await thread.contains("⏪")
        await chat.starts_next()
        assert len(thread.texts) == 2
    first, second = history.rewinds
    assert first == second


async def test_only_the_author_sees_a_private_answer_once_though_a_mention_is_two_events(chat):
    thread = await answered(chat)
    await thread.say("@alpha !status")
    await whispered(chat, "ana", "Nothing is running here.")
    await chat.acknowledged()
    assert len(whispers(chat, "ana")) == 1
    assert whispers(chat, "ben") == []
    assert chat.sessions.idle


async def test_an_edit_corrects_a_misspelt_command_and_does_not_repeat_another_one(process, history):
    async with process(history=history) as chat:
        thread = await answered(chat)
        ts = await thread.say("!rewnid")
        await whispered(chat, "ana", "Did you mean `!rewind [N]`?")
        await thread.edit(ts, "!rewind")
        await thread.contains("⏪")
        await thread.edit(ts, "!rewind 2")
        await chat.acknowledged()
        await chat.starts_next()
        assert len(history.rewinds) == 1


async def test_status_shows_the_step_and_the_pending_messages(chat):
    thread = await chat.start()
    await thread.run.on_progress("tool:start", {"tool": "read_file", "id": "1"})
    thread.run.full = True
    await thread.say("and that")
    await thread.say("!status")
    shown = await whispered(chat, "ana", "“look”")
    assert "Now: Alpha: Reading file… 1 message waiting." in shown
    await thread.run.answer("done")


async def test_a_person_who_does_not_take_part_gives_no_command_without_a_mention(chat):
    thread = await answered(chat)
    await thread.say("!status", who="ben")
    await chat.acknowledged()
    assert whispers(chat, "ben") == []


async def test_without_stored_conversations_a_command_says_so(chat):
    thread = await answered(chat)
    await thread.say("!branches")
    await thread.contains("The conversations of this agent are not stored")


async def test_a_thread_without_an_agent_has_the_models_of_the_agent_of_its_channel(process):
    instances = replace(ALPHA, models=("strong",)), replace(BETA, models=("quick", "slow"))
    async with process(*instances, channels={"C0GENERAL": ChannelRules("beta")}) as chat:
        thread = await chat.say("@alpha !model")
        await thread.contains("Models: `quick` (current), `slow`.")
        thread = await chat.say("@alpha !model slow")
        await thread.contains("the model slow answers in this thread")


async def read_again_by_a_catch_up(thread, *commands: str) -> asyncio.Event:
    """Give commands that a late mention of Ben, older than they are, makes the service find again in the thread."""
    chat = thread.chat
    await chat.acknowledged()
    chat.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()), times=2)
    await thread.say("@alpha and I?", "ben")
    for each in commands:
        await thread.say(each)
    await chat.slack.until(lambda _: len(chat.calls("chat.postEphemeral")) == len(commands))
    return arrives


async def test_a_private_command_that_is_found_again_is_not_answered_again_by_another_replica(process):
    async with process() as chat, process():
        thread = await chat.start_shown()
        commands = ("!status", "!help", "!cost", "!workers", "!approvals", "!statsu")
        arrives = await read_again_by_a_catch_up(thread, *commands)
        arrives.set()
        await chat.acknowledged()
        await thread.run.injected("and I?")
        await thread.inject("the next one")
        assert len(chat.calls("chat.postEphemeral")) == len(commands)


class Workers:
    """The workers of a thread."""

    def __init__(self) -> None:
        self.found: list[Worker] = []

    async def of_thread(self, _conversation_id: str) -> tuple[Worker, ...]:
        return tuple(self.found)

    async def find(self, conversation_id: str) -> Worker | None:
        return next((each for each in self.found if each.conversation_id == conversation_id), None)

    async def begun(self, _conversation_id: str, *, fence: int) -> None: ...

    def dispatch(self, name: str, thread) -> Worker:
        parent = f"T0LOCAL:C0GENERAL:{thread.ts}"
        self.found.append(Worker(name, f"{parent}:{name}", parent, "", "alpha", "", "", "U0ANA", time.time()))
        return self.found[-1]


async def test_a_command_that_is_found_again_stops_no_worker_that_was_dispatched_after_it(process, store):
    workers = Workers()
    async with process(workers=workers) as chat:
        thread = await chat.start_shown()
        earlier = workers.dispatch("w000001", thread)
        arrives = await read_again_by_a_catch_up(thread, "!worker stop all")
        later = workers.dispatch("w000002", thread)
        arrives.set()
        await chat.acknowledged()
        await thread.run.injected("and I?")
        assert (await store.record(earlier.conversation_id)).order
        assert await store.record(later.conversation_id) is None


async def test_the_first_message_of_a_newcomer_to_a_worker_is_read_by_the_worker_only(process):
    workers = Workers()
    async with process(workers=workers) as chat:
        thread = await chat.start_shown()
        worker = workers.dispatch("w000001", thread)
        await thread.run.answer("ok")
        await thread.contains("ok")
        await thread.say("@alpha w000001 do it", who="ben")
        run = await chat.sessions.next_run()
        assert (run.conversation, run.prompt) == (worker.conversation_id, "do it")
        await chat.starts_next()


async def test_a_worker_is_named_before_a_file(process):
    workers = Workers()
    async with process(workers=workers) as chat:
        thread = await chat.start_shown()
        worker = workers.dispatch("w000001", thread)
        await chat.ana.share("general", {"a.txt": b"one"}, "@w000001", thread=thread.ts)
        run = await chat.sessions.next_run()
        assert (run.conversation, run.prompt) == (worker.conversation_id, "a.txt")
