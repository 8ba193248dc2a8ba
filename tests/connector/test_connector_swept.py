"""What calls of a process that is dead do after its conversation was taken up, and what becomes of that."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from fake_sessions import FakeSessionManager
from slack_environment import Hold

from connector import Instance, Persona, SlackCredentials, SocketTransport, connected
from local_slack import Waits
from local_slack.workspace.messages import Body
from service.runs.runs import StoredRuns
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from local_slack import LocalSlack, Message, PersonClient
    from service.store.base import RunStore

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
HOURGLASS = "hourglass_flowing_sand"
LONG = "# Report\n\nIt begins.\n\n## Findings\n\n" + "paragraph " * 3000
NO_TIME, FOR_EVER = 0.0, 3600.0


@pytest.fixture
def sessions() -> FakeSessionManager:
    """What the agents remember outlives the process, as their logs do."""
    return FakeSessionManager()


@pytest.fixture
def process(slack: LocalSlack, sessions: FakeSessionManager, tmp_path):
    """A process of the service, which ends while its calls are on their way; it sweeps after `late_s`."""

    @asynccontextmanager
    async def process(late_s: float = NO_TIME) -> AsyncIterator[RunStore]:
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        async with (
            aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store,
            StoredRuns(store, "a process", 10) as runs,
            connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1, calls_late_s=late_s),
        ):
            await slack.until(lambda ws: ws.bot_online)
            yield store

    return process


@pytest.fixture
def ana(slack: LocalSlack) -> PersonClient:
    return slack.as_person("ana")


@pytest.fixture
def held(slack: LocalSlack) -> Callable[[str], Hold]:
    """Hold the next call of a method, whoever makes it, until the event is set."""

    def held(method: str) -> Hold:
        hold = Hold()
        slack.faults.next(method, Waits(hold))
        return hold

    return held


def bot_posts(slack: LocalSlack, root: str) -> list[Message]:
    return [m for m in slack.workspace.thread(slack.channel("general").id, root) if m.by_bot]


def texts(slack: LocalSlack, root: str) -> list[str]:
    return [m.text for m in bot_posts(slack, root)]


def is_marked(slack: LocalSlack, ts: str) -> bool:
    return slack.workspace.message("general", ts).reacted(HOURGLASS)


async def begun(slack: LocalSlack, ana: PersonClient, sessions: FakeSessionManager):
    """A run with its status and its hourglass."""
    root = await ana.say("general", "@alpha look")
    run = await sessions.next_run()
    await slack.until(lambda _: bot_posts(slack, root) and is_marked(slack, root))
    return root, run


async def test_of_an_answer_that_two_processes_have_posted_the_earlier_one_stays(slack, sessions, process, ana, held):
    async with process():
        root, run = await begun(slack, ana, sessions)
        posting = held("chat.postMessage")
        await run.answer("the answer", part=1)
        await posting.reached.wait()
    looking, sweeping = held("conversations.replies"), held("conversations.replies")
    async with process():
        await looking.reached.wait()
        looking.set()
        await sweeping.reached.wait()
        (answer,) = bot_posts(slack, root)
        posting.set()
        await slack.until(lambda _: texts(slack, root) == ["the answer"] * 2)
        sweeping.set()
        await slack.until(lambda _: [m.ts for m in bot_posts(slack, root)] == [answer.ts])


async def test_a_status_that_comes_after_its_run_was_taken_up_goes(slack, sessions, process, ana, held):
    posting = held("chat.postMessage")
    async with process():
        root = await ana.say("general", "@alpha look")
        await sessions.next_run()
        await posting.reached.wait()
    async with process():
        run = await sessions.next_run()
        await run.progress("thinking", iteration=1)
        await slack.until(lambda _: texts(slack, root))
        posting.set()
        await slack.until(lambda _: len(texts(slack, root)) == 2)
        await run.answer("the answer", part=1)
        await slack.until(lambda _: texts(slack, root) == ["the answer"])


async def test_a_status_that_comes_when_its_thread_is_gone_goes_too(slack, sessions, process, ana, held):
    posting = held("chat.postMessage")
    async with process():
        root = await ana.say("general", "@alpha look")
        await sessions.next_run()
        await posting.reached.wait()
    async with process():
        run = await sessions.next_run()
        sweeping = held("conversations.replies")
        await ana.delete("general", root)
        await run.until(lambda run: bool(run.stops))
        await run.answer("", status="cancelled")
        await sweeping.reached.wait()
        posting.set()
        await slack.until(lambda ws: len(ws.messages(slack.channel("general").id)) == 1)
        sweeping.set()
        await slack.until(lambda ws: not ws.messages(slack.channel("general").id))


async def test_an_hourglass_that_comes_after_it_was_taken_away_goes(slack, sessions, process, ana, held):
    marking = held("reactions.add")
    async with process():
        root = await ana.say("general", "@alpha look")
        await sessions.next_run()
        await marking.reached.wait()
    async with process():
        run = await sessions.next_run()
        await slack.until(lambda _: is_marked(slack, root))
        sweeping = held("conversations.replies")
        await run.answer("the answer", part=1)
        await sweeping.reached.wait()
        assert not is_marked(slack, root)
        marking.set()
        await slack.until(lambda _: is_marked(slack, root))
        sweeping.set()
        await slack.until(lambda _: not is_marked(slack, root))


@pytest.mark.parametrize("is_shown_again", [False, True])
async def test_of_a_file_that_two_processes_have_shared_the_earlier_one_stays(  # noqa: PLR0917 - its fixtures
    slack, sessions, process, ana, held, is_shown_again
):
    def files() -> list[str]:
        return [file.id for m in bot_posts(slack, root) for file in m.body.files if slack.workspace.file(file.id)]

    async with process():
        root, run = await begun(slack, ana, sessions)
        sharing = held("files.completeUploadExternal")
        await run.progress("text", text=LONG, part=1)
        await sharing.reached.wait()
    async with process():
        run = await sessions.next_run()
        (kept,) = await slack.until(lambda _: files())
        if is_shown_again:
            body = Body("see this", files=(slack.workspace.file(kept),))
            slack.workspace.post(slack.channel("general").id, slack.person("ana"), body, thread_ts=root)
        await slack.until(lambda _: any("whole answer" in text for text in texts(slack, root)))
        sweeping = held("conversations.replies")
        await run.answer("the answer", part=2)
        await sweeping.reached.wait()
        sharing.set()
        await slack.until(lambda _: len(files()) == 2)
        sweeping.set()
        await slack.until(lambda _: files() == [kept])


async def test_of_a_reply_that_two_processes_have_posted_the_earlier_one_stays(slack, sessions, process, ana, held):
    async with process():
        root, run = await begun(slack, ana, sessions)
        await run.answer("the answer", part=1)
        await slack.until(lambda _: texts(slack, root) == ["the answer"] and not is_marked(slack, root))
        posting = held("chat.postMessage")
        await ana.say("general", "stop", thread=root)
        await posting.reached.wait()
    looking, sweeping = held("conversations.replies"), held("conversations.replies")
    async with process():
        await looking.reached.wait()
        looking.set()
        await sweeping.reached.wait()
        _, reply = bot_posts(slack, root)
        posting.set()
        await slack.until(lambda _: len(texts(slack, root)) == 3)
        sweeping.set()
        await slack.until(lambda _: [m.ts for m in bot_posts(slack, root)][1:] == [reply.ts])


async def test_who_is_to_end_does_not_wait_to_sweep_and_who_comes_after_it_does(slack, sessions, process, ana, held):
    posting = held("chat.postMessage")
    async with process():
        root = await ana.say("general", "@alpha look")
        await sessions.next_run()
        await posting.reached.wait()
    async with process(FOR_EVER):
        await (await sessions.next_run()).answer("the answer", part=1)
        await slack.until(lambda _: texts(slack, root) == ["the answer"])
        await ana.say("general", "and now?", thread=root)
        await (await sessions.next_run()).answer("it begins at once")
        await slack.until(lambda _: texts(slack, root) == ["the answer", "it begins at once"])
    posting.set()
    await slack.until(lambda _: len(texts(slack, root)) == 3)
    async with process():
        await slack.until(lambda _: texts(slack, root) == ["the answer", "it begins at once"])
