"""Talk among people is read once, as context, in front of the message it comes with."""

from __future__ import annotations

import asyncio

import foreign_loops
import pytest
from anthropic_server import Gate, text, tool_call
from hostile_texts import AUTHOR, FILES, NAMES, TALK, TYPED, ZONE, read_messages, words
from imitations import user_texts
from session_tests import ANA, HERE, ProgressRecorder, steering

from connector.protocols import MessageAuthor, TalkMessage, ThreadTalk
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ModuleConfig

BEN = MessageAuthor("U0BEN", "Ben", "America/New_York")
NOON_S = 1_767_268_800.0  # 2026-01-01 12:00 UTC
WITHOUT_STEPS = """
from orchestrator_interactive.testing.modules import MockContextManager

async def mount(coordinator, config):
    await coordinator.mount("context", MockContextManager())
"""


def talk(*numbers, left_out=0, said="lunch?"):
    """Return talk of Ben with these numbers in the ids."""
    return ThreadTalk(
        tuple(
            TalkMessage(f"T:C:{n}.5", BEN, f"{said} {n}", NOON_S + n, ("menu.md",) if n == 1 else ()) for n in numbers
        ),
        left_out,
    )


def begin(sessions, prompt="hello", message_id=HERE, **given):
    return sessions.execute("alpha", HERE, prompt, message_id=message_id, author=ANA, **given)


async def test_the_model_reads_talk_in_front_of_the_prompt_with_authors_and_their_time(model, started):
    async with started() as sessions:
        await begin(sessions, talk=talk(1, 2, left_out=12), notes={"n": "The build is green."})
        assert await sessions.delivered("alpha", HERE, [HERE, "T:C:1.5", "T:C:2.5", "T:C:3.5"]) == {
            *(HERE, "T:C:1.5", "T:C:2.5")
        }
        await begin(sessions, "and now?", "T:C:9.0")
    notice, overheard, *prompts = user_texts(model.bodies[-1])
    assert notice == "[This happened since your last answer:]\n- The build is green."
    assert overheard.split("\n") == [
        TALK,
        "[12 earlier messages are left out.]",
        "- Ben (U0BEN), 2026-01-01 07:00 America/New_York, with files menu.md: lunch? 1",
        "- Ben (U0BEN), 2026-01-01 07:00 America/New_York: lunch? 2",
    ]
    assert prompts == ["Ana (U0ANA): hello", "Ana (U0ANA): and now?"]


async def test_one_message_is_left_out_and_a_file_has_no_text(model, started):
    silent = TalkMessage("T:C:1.5", MessageAuthor("U0CY", "Cy", "No/Where"), "", NOON_S, ("a.md",))
    async with started() as sessions:
        await begin(sessions, talk=ThreadTalk((silent,), 1))
    assert user_texts(model.bodies[-1])[0].splitlines()[1:] == [
        "[1 earlier message is left out.]",
        "- Cy (U0CY), 2026-01-01 12:00 UTC, with files a.md: ",
    ]


async def test_an_injection_brings_its_talk_and_takes_it_with_it(model, started):
    gate = Gate()
    model.reply(gate, text("hm"))
    async with started() as sessions:
        run = asyncio.create_task(begin(sessions))
        await gate.reached.wait()
        for number, overheard in ((2, ThreadTalk()), (3, talk(2)), (4, talk(3)), (5, talk(4))):
            given = steering(f"T:C:{number}.0", f"steer {number}", number)
            assert sessions.inject("alpha", HERE, **given, talk=overheard)
        assert await sessions.withdraw("alpha", HERE, "T:C:4.0")
        assert await sessions.edit("alpha", HERE, "T:C:5.0", "edited")
        gate.open()
        await run
        ids = [f"T:C:{n}.5" for n in (2, 3, 4)]
        assert await sessions.delivered("alpha", HERE, ids) == {"T:C:2.5", "T:C:4.5"}
    rows = [each.splitlines()[1:] for each in user_texts(model.bodies[-1])[1:]]
    assert [line.rpartition(": ")[2] for row in rows for line in row] == [
        *("steer 2", "lunch? 2", "steer 3", "lunch? 4", "edited")
    ]


class Snapshots(MemoryStore):
    """Keeps the content of the log after each commit, as a process finds it after a kill."""

    def __init__(self):
        super().__init__()
        self.commits = []

    async def commit(self, key, change):
        await super().commit(key, change)
        self.commits.append(str(sorted((await self.read(key, 0, 0, 99)), key=lambda node: node.index)))


async def test_after_a_kill_at_any_commit_a_message_and_its_talk_are_both_read_or_none(model, manager):
    store, gate = Snapshots(), Gate()
    model.reply(gate, tool_call("list_files"))
    async with manager(store=store) as sessions:
        run = asyncio.create_task(begin(sessions, talk=talk(1)))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0"), talk=talk(2))
        gate.open()
        await run
    for message, overheard in (("hello", "lunch? 1"), ("and that", "lunch? 2")):
        both = [(message in each, overheard in each) for each in store.commits]
        assert set(both) <= {(True, True), (False, False)}
        assert both[-1] == (True, True)


async def test_a_context_that_cannot_take_two_rows_at_once_gets_one(model, manager, tmp_path):
    (tmp_path / "one_row.py").write_text(WITHOUT_STEPS)
    gate = Gate()
    model.reply(gate, text("hm"))
    async with manager(context=ModuleConfig(module="one-row", source=str(tmp_path / "one_row.py"))) as sessions:
        run = asyncio.create_task(begin(sessions, talk=talk(1)))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0"), talk=talk(2))
        gate.open()
        await run
        ids = [HERE, "T:C:1.5", "T:C:2.0", "T:C:2.5"]
        assert await sessions.delivered("alpha", HERE, ids) == set(ids)
    first, second = user_texts(model.bodies[-1])
    assert (first.startswith(TALK), first.endswith("\nAna (U0ANA): hello")) == (True, True)
    assert (second.startswith(TALK), second.endswith("\n- Ana (U0ANA): and that")) == (True, True)


@pytest.mark.parametrize("kind", ["EXACT", "STEERED", "DOCUMENTED"])
async def test_a_loop_of_another_author_reads_talk_in_its_prompt_or_in_front_of_a_message(
    model, started, tmp_path, kind
):
    (tmp_path / f"talk_{kind}.py").write_text(getattr(foreign_loops, kind))
    loop = ModuleConfig(module="loop-foreign", source=str(tmp_path / f"talk_{kind}.py"))
    gate = Gate()
    model.reply(gate, tool_call("todo", {"action": "show"}))
    async with started(orchestrator=loop, tools=[ModuleConfig(module="tool-todo")]) as sessions:
        run = asyncio.create_task(begin(sessions, talk=talk(1), on_progress=ProgressRecorder()))
        await gate.reached.wait()
        injected = sessions.inject("alpha", HERE, **steering("T:C:2.0"), talk=talk(2))
        assert injected == (kind != "EXACT")
        gate.open()
        await run
        ids = [HERE, "T:C:1.5"] + ["T:C:2.0", "T:C:2.5"] * injected
        assert await sessions.delivered("alpha", HERE, [*ids, "T:C:2.5"]) == set(ids)
    first, *steered = user_texts(model.bodies[-1])
    assert first.splitlines()[0] == TALK
    assert first.splitlines()[-1] == "Ana (U0ANA): hello"
    for each in steered:
        lines = each.splitlines()
        assert [line.rpartition(": ")[2] for line in lines[-2:]] == ["lunch? 2", "and that"]


async def test_a_loop_without_steering_reads_the_talk_of_waiting_messages_with_its_next_prompt(
    model, started, tmp_path
):
    (tmp_path / "talk_next.py").write_text(foreign_loops.EXACT)
    loop = ModuleConfig(module="loop-foreign", source=str(tmp_path / "talk_next.py"))

    async def on_progress(event, _data):
        if event == "executing":
            assert sessions.inject("alpha", HERE, **steering("T:C:3.0", "also", 3.0), talk=talk(2))
            assert sessions.inject("alpha", HERE, **steering("T:C:4.0", "no", 4.0), talk=talk(3))
            assert await sessions.withdraw("alpha", HERE, "T:C:4.0")

    async with started(orchestrator=loop) as sessions:
        await begin(sessions, talk=talk(1), on_progress=on_progress)
        ids = [HERE, "T:C:1.5", "T:C:2.5", "T:C:3.0"]
        assert await sessions.delivered("alpha", HERE, [*ids, "T:C:3.5", "T:C:4.0"]) == set(ids)
    [prompt] = user_texts(model.bodies[0])
    assert [line.rpartition(": ")[2] for line in prompt.splitlines() if line != TALK] == [
        *("lunch? 1", "hello", "lunch? 2", "also")
    ]


async def test_hostile_talk_stays_in_the_messages_of_its_authors(model, started):
    mallory = MessageAuthor("U0MALLORY", "Mallory", ZONE)
    said = [
        *(TalkMessage(f"T:C:{n}.5", mallory, each, NOON_S) for n, each in enumerate(TYPED.values())),
        *(TalkMessage(f"T:C:3{n}.5", mallory, "see", NOON_S, (each,)) for n, each in enumerate(FILES)),
        *(TalkMessage(f"T:C:4{n}.5", MessageAuthor("U0M", each), "hi", NOON_S) for n, each in enumerate(NAMES)),
    ]
    async with started() as sessions:
        await begin(sessions, talk=ThreadTalk(tuple(said)))
    *read, (author, prompt) = read_messages(model.bodies[-1])
    assert (author, prompt) == ("Ana (U0ANA)", "hello")
    assert [words(each) for _, each in read] == [words(each.text) for each in said]
    assert {author for author, _ in read[: -len(NAMES)]} == {f"{AUTHOR.partition(',')[0]}, then"}
