"""What a run says is written down when it is said: whoever succeeds its process posts it, and does nothing more."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from slack_environment import Hold
from takeover_threads import begun, bot_posts, is_marked, of_an_earlier_run, over, texts

from connector import Instance, Persona, RunFailed, SlackCredentials, SocketTransport, connected
from local_slack import Refuses, Waits
from service.runs.runs import StoredRuns

ALPHA, BETA = Instance("alpha", Persona("Alpha", ":owl:")), Instance("beta", Persona("Beta", ":fox_face:"))
ONE_WAITS = "📨 1 message has not been read yet. I will read it with your next message."
REFUSED = "📭 Not accepted: “no words”. It has no words; send it with some."


@pytest.fixture(autouse=True)
def as_the_test_says(sessions) -> None:
    """No run ends by itself."""
    sessions.obedient = False


@pytest.fixture
def posting(slack):
    """The next post waits, until the processes that did not survive it are gone."""
    hold = Hold()

    def held() -> Hold:
        slack.faults.next("chat.postMessage", Waits(hold))
        return hold

    yield held
    slack.faults.clear()
    hold.set()


@pytest.fixture
def replica(slack, sessions, store):
    """A process that shares its store, and has a moment for its end."""

    @asynccontextmanager
    async def replica(name: str):
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        async with (
            StoredRuns(store, name, 10) as runs,
            connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1),
        ):
            await slack.until(lambda ws: ws.bot_online)
            yield

    return replica


async def all_taken(slack) -> None:
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)


@pytest.mark.parametrize("last", ["⚠️ The model is away.", "third"])
async def test_texts_that_wait_to_be_posted_outlive_the_end_of_their_run(  # noqa: PLR0917 - fixtures
    slack, sessions, process, ana, posting, last
):
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        held = posting()
        await run.progress("text", text="first", part=1)
        await held.reached.wait()
        await run.progress("text", text="second", part=2)
        await (run.answer(last, part=3) if last == "third" else run.fail(RunFailed("The model is away.")))
    slack.faults.clear()
    async with process():
        assert await over(slack, root) == ["first", "second", last]
    assert sessions.prompts == ["look"]


async def test_a_conversation_whose_answer_waits_for_slack_is_handed_over(  # noqa: PLR0917 - fixtures
    slack, sessions, replica, store, ana, posting
):
    async with replica("one"):
        root, run = await begun(slack, ana, sessions)
        held = posting()
        await run.answer("the answer", part=1)
        await held.reached.wait()
    assert len(await store.due(slack.team_id, 5)) == 1, "nobody waits for its lease to run out"
    slack.faults.clear()
    async with replica("another"):
        assert await over(slack, root) == ["the answer"]
    assert sessions.prompts == ["look"]


async def test_a_message_that_is_refused_has_its_reason_though_the_process_ends_first(
    slack, sessions, process, ana, posting
):
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        held = posting()
        await run.progress("text", text="first", part=1)
        await held.reached.wait()
        run.refuses = True
        await ana.say("general", "no words", thread=root)
        await run.until(lambda r: r.refused == 1)
    slack.faults.clear()
    async with process():
        run = await sessions.next_run()
        await run.progress("text", text="first", part=1)
        await run.answer("ok", part=2)
        assert sorted(await over(slack, root)) == sorted(["first", REFUSED, "ok"])
        assert run.steers == []


async def test_a_stop_of_a_run_that_had_not_begun_is_told_by_the_next_process(slack, sessions, process, ana, posting):
    root = await of_an_earlier_run(slack, sessions, process, ana)
    await ana.say("general", "and this", thread=root)
    await ana.say("general", "stop", thread=root)
    held = posting()
    async with process(grace_s=0.1):
        await held.reached.wait()
    slack.faults.clear()
    async with process():
        await slack.until(lambda _: texts(slack, root) == ["ok", "🛑 Stopped by Ana."])
    assert sessions.idle


async def test_what_a_stop_holds_back_at_the_last_moment_is_told_by_the_next_process(
    slack, sessions, process, ana, posting
):
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        held = posting()
        await run.answer("the answer", part=1)
        await held.reached.wait()
        late = await ana.say("general", "waits", thread=root)
        await slack.until(lambda _: is_marked(slack, late, "incoming_envelope"))
        await ana.say("general", "stop", thread=root)
        await all_taken(slack)
    slack.faults.clear()
    async with process():
        await slack.until(lambda _: texts(slack, root) == ["the answer", ONE_WAITS])
        assert sessions.idle


async def test_what_a_stop_held_back_and_has_named_is_not_named_again(slack, sessions, process, ana, posting):
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        late = await ana.say("general", "waits", thread=root)
        await slack.until(lambda _: is_marked(slack, late, "incoming_envelope"))
        await ana.say("general", "stop", thread=root)
        await run.until(lambda r: bool(r.stops))
        held = posting()
        await run.answer("", status="cancelled")
        await held.reached.wait()
    slack.faults.clear()
    stopped = "🛑 Stopped by Ana. 1 message has not been read yet. I will read it with your next message."
    async with process():
        await slack.until(lambda _: texts(slack, root) == [stopped])
        await ana.say("general", "go on", thread=root)
        run = await sessions.next_run()
        assert (run.prompt, run.resumed) == ("waits", False)
        await run.answer("ok")
        await slack.until(lambda _: "ok" in texts(slack, root))
    assert [text for text in texts(slack, root) if "⚙️" not in text] == [stopped, "ok"]


async def test_a_run_that_has_said_its_last_word_takes_no_message_in(slack, sessions, process, ana, posting):
    why = "⏸️ I stopped here: this run has reached its step limit. Write “continue” and I will carry on."
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        held = posting()
        await run.answer("", status="incomplete", reason="max_iterations")
        await held.reached.wait()
    slack.faults.clear()
    await ana.say("general", "go on", thread=root)
    async with process():
        run = await sessions.next_run()
        assert (run.prompt, run.resumed) == ("go on", False)
        await run.fail(RunFailed("The model is away."))
        said = [why, "⚠️ The model is away."]
        await slack.until(lambda _: texts(slack, root) == said)


async def test_who_begins_anew_what_another_instance_had_begun_is_heard(slack, sessions, process, ana):
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        await run.progress("text", text="first", part=1)
        await slack.until(lambda _: "first" in texts(slack, root))
    async with process(agents=(BETA,)):
        run = await sessions.next_run()
        assert (run.instance, run.resumed) == ("beta", False)
        await run.answer("the answer of beta", part=1)
        assert await over(slack, root) == ["first", "the answer of beta"]


async def test_a_run_that_is_cut_at_the_end_of_its_process_goes_on_and_nobody_has_stopped_it(
    slack, sessions, process, ana
):
    async with process(grace_s=0.4):
        root, run = await begun(slack, ana, sessions)

        async def end_when_cut() -> None:
            await run.until(lambda r: bool(r.stops))
            await run.answer("", status="cancelled")

        cut = asyncio.create_task(end_when_cut())
    await cut
    async with process():
        run = await sessions.next_run()
        assert run.resumed
        await run.answer("the answer", part=1)
        assert await over(slack, root) == ["the answer"]


async def test_a_second_stop_is_still_one_after_the_process_has_ended(slack, sessions, process, ana):
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        for stops in ([False], [False, True]):
            await ana.say("general", "stop", thread=root)
            await run.until(lambda r, stops=stops: r.stops == stops)
    async with process():
        run = await sessions.next_run()
        assert run.stops == [True]
        await run.answer("", status="cancelled")
        assert await over(slack, root) == ["🛑 Stopped by Ana."]


async def test_who_may_not_be_answered_where_they_asked_is_told_by_the_next_process(slack, sessions, process, ana):
    telling = Hold()
    async with process(grace_s=0.1):
        _, run = await begun(slack, ana, sessions)
        slack.faults.next("chat.postMessage", Refuses("is_archived"))
        slack.faults.next("chat.postMessage", Waits(telling))
        await run.progress("text", text="first", part=1)
        await telling.reached.wait()
    slack.faults.clear()
    telling.set()

    def told() -> bool:
        posts = [m.text for c in slack.workspace.channels for m in slack.workspace.messages(c.id) if m.by_bot]
        return any(text.startswith("⚠️ I could not continue in") for text in posts)

    async with process():
        await slack.until(lambda _: told())
        run = await sessions.next_run()
        assert run.stops == [True], "nobody would read what it says"
        await run.answer("", status="cancelled")


async def test_unknown_outcomes_are_told_once_however_often_the_run_is_resumed(slack, sessions, process, ana):
    call = {"tool": "bash", "id": "1", "label": "Running the tests", "outcome": "unknown"}
    other = {"tool": "bash", "id": "2", "label": "Tidying up", "outcome": "unknown"}
    async with process(grace_s=0.1):
        root, _ = await begun(slack, ana, sessions)
    for calls in ([call], [call], [call, other]):
        async with process(grace_s=0.1):
            run = await sessions.next_run()
            await run.progress("resumed", tools=calls, unknown=[each["label"] for each in calls])
            await slack.until(lambda _, last=calls[-1]["label"]: any(last in text for text in texts(slack, root)))
    async with process():
        await (await sessions.next_run()).answer("the answer", part=1)
        first, second, answer = await over(slack, root)
        assert ("Running the tests. " in first, "Running the tests and Tidying up. " in second) == (True, True)
        assert answer == "the answer"
        assert len(bot_posts(slack, root)) == 3
