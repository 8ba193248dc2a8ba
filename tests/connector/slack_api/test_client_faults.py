from __future__ import annotations

import asyncio
import contextlib
import html

import pytest
from fake_sessions import FakeSessionManager

from connector import ConnectionRefused, Instance, Persona, SlackCredentials, SocketTransport, connected
from local_slack import Breaks, DropsAfterwards, DropsBefore, RateLimits, Refuses, Waits

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
# A gateway's error page is plain text, as often as not.
GATEWAY_ERRORS = [Breaks(503), Breaks(200)]


async def begun(scene, text="@alpha look"):
    """A run with its hourglass and its status."""
    ts = await scene.ana.say("general", text)
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    return ts, run


@pytest.mark.parametrize("fault", GATEWAY_ERRORS)
async def test_a_gateway_error_on_the_mark_of_a_steer_does_not_end_the_service(slack, runs, fault):
    sessions = FakeSessionManager()
    access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
    async with asyncio.timeout(20), connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.5):
        ana = slack.as_person("ana")
        ts = await ana.say("general", "@alpha look")
        run = await sessions.next_run()
        await slack.until(lambda ws: ws.thread(slack.channel("general").id, ts)[0].reacted("hourglass_flowing_sand"))
        slack.faults.next("reactions.add", fault)
        await ana.say("general", "and the tests", thread=ts)
        await run.until(lambda r: len(r.steers) == 1)
        await slack.until(lambda ws: ws.thread(slack.channel("general").id, ts)[1:] != ())
        await run.answer("the answer")
        await slack.until(lambda ws: [m for m in ws.thread(slack.channel("general").id, ts) if m.text == "the answer"])
        await ana.say("general", "@alpha still there?")
        await (await sessions.next_run()).answer("yes")


@pytest.mark.parametrize("fault", GATEWAY_ERRORS)
@pytest.mark.parametrize("method", ["reactions.add", "chat.postMessage"])
async def test_a_gateway_error_while_a_run_is_first_shown_does_not_cut_it(scene, of_bot, method, fault):
    scene.slack.faults.next(method, fault)
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await run.answer("the answer")
    assert of_bot(await scene.quiet("general", ts)) == ["the answer"]


@pytest.mark.parametrize("fault", GATEWAY_ERRORS)
@pytest.mark.parametrize("method", ["chat.delete", "reactions.remove", "chat.postMessage"])
async def test_a_gateway_error_at_the_end_of_a_run_leaves_the_answer_and_nothing_else(scene, of_bot, method, fault):
    ts, run = await begun(scene)
    scene.slack.faults.next(method, fault)
    await run.answer("the answer")
    assert of_bot(await scene.quiet("general", ts)) == ["the answer"]


@pytest.mark.parametrize("fault", [*GATEWAY_ERRORS, Refuses("user_not_found"), Refuses("missing_scope")])
async def test_a_message_gets_in_though_its_authors_name_cannot_be_had(scene, fault):
    scene.slack.faults.next("users.info", fault)
    await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    assert run.prompt == "look"
    await run.answer("ok")


async def test_hourglass_and_status_do_not_wait_for_the_authors_name(scene, hold):
    hold("users.info")
    ts = await scene.ana.say("general", "@alpha look")
    await scene.slack.until(lambda _: scene.message("general", ts).reacted("hourglass_flowing_sand"), 3)


async def test_the_envelope_on_a_steer_does_not_wait_for_somebody_elses_name(scene, hold):
    ts, _run = await begun(scene)
    lookup = hold("users.info")
    await scene.ben.say("general", "from Ben", thread=ts)
    steer = await scene.ana.say("general", "from Ana, whose name is known", thread=ts)
    try:
        await scene.slack.until(lambda _: scene.message("general", steer).reacted("incoming_envelope"), 3)
    finally:
        lookup.set()


async def test_a_status_whose_last_attempt_was_in_doubt_does_not_stay_for_ever(scene, of_bot):
    scene.slack.faults.next("chat.postMessage", DropsBefore(), times=3)
    scene.slack.faults.next("chat.postMessage", DropsAfterwards())
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await run.answer("the answer")
    await scene.reacted("general", ts, "hourglass_flowing_sand", gone=True)
    assert scene.texts("general", ts) == ["the answer"]


async def test_an_answer_in_doubt_is_found_in_a_thread_of_more_than_a_hundred_replies(scene, of_bot):
    root = await scene.ana.say("general", "a long talk")
    for number in range(101):
        await scene.ben.say("general", f"reply {number}", thread=root)
    await scene.ana.say("general", "@alpha sum this up", thread=root)
    run = await scene.sessions.next_run()
    await scene.status("general", root)
    scene.slack.faults.next("chat.postMessage", DropsAfterwards())
    await run.answer("the answer")
    assert of_bot(await scene.quiet("general", root)) == ["the answer"]


async def test_an_answer_outlasts_a_longer_row_of_rate_limits(scene, of_bot):
    ts, run = await begun(scene)
    scene.slack.faults.next("chat.postMessage", RateLimits(0), times=5)
    await run.answer("the answer")
    await scene.posted("general", ts, "the answer")


@pytest.mark.parametrize("error", ["msg_too_long", "msg_blocks_too_long", "invalid_arguments"])
async def test_an_answer_that_slack_refuses_is_not_followed_by_silence(scene, of_bot, error):
    ts, run = await begun(scene)
    scene.slack.faults.next("chat.postMessage", Refuses(error))
    await run.answer("the answer")
    await scene.reacted("general", ts, "hourglass_flowing_sand", gone=True)
    assert of_bot(scene.slack.workspace.thread(scene.slack.channel("general").id, ts)), "nobody hears of it"


@pytest.mark.parametrize("error", ["msg_too_long", "invalid_blocks", "markdown_text_conflict"])
async def test_of_an_answer_that_slack_refuses_in_shorter_pieces_too_people_hear_once(scene, of_bot, error):
    ts, run = await begun(scene)
    scene.slack.faults.next("chat.postMessage", Refuses(error), times=2)
    await run.answer("the answer")
    (told,) = of_bot(await scene.quiet("general", ts))
    assert error in told


async def test_the_direct_message_that_says_why_there_is_no_answer_outlasts_a_dropped_connection(scene):
    _ts, run = await begun(scene)
    scene.slack.faults.next("chat.postMessage", Refuses("is_archived"))
    scene.slack.faults.next("chat.postMessage", DropsBefore())
    await run.answer("the answer")
    dm = await scene.ana.open_dm("alpha")
    assert await scene.slack.until(lambda ws: ws.messages(dm))


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("thread_locked", "the thread is locked"),
        ("is_archived", "the channel is archived"),
        ("not_in_channel", "Invite me"),
    ],
)
async def test_who_asked_where_we_may_not_write_any_more_is_told_in_a_direct_message(scene, error, why):
    ts, run = await begun(scene)
    scene.slack.faults.next("chat.postMessage", Refuses(error))
    await run.answer("the answer")
    dm = await scene.ana.open_dm("alpha")
    told = await scene.slack.until(lambda ws: ws.messages(dm))
    assert why in told[0].text
    assert f"<#{scene.slack.channel('general').id}>" in told[0].text
    assert scene.slack.workspace.thread(scene.slack.channel("general").id, ts)[0].text


async def test_a_run_that_may_not_even_show_its_status_is_stopped(scene):
    ts, run = await begun(scene)
    await run.answer("so that Ana's name is known")
    await scene.posted("general", ts, "name is known")
    scene.slack.faults.next("chat.postMessage", Refuses("is_archived"))
    await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await run.until(lambda r: r.stops == [True])
    await run.answer("", status="cancelled")
    dm = await scene.ana.open_dm("alpha")
    assert len(await scene.slack.until(lambda ws: ws.messages(dm))) == 1


async def test_the_label_of_a_tool_cannot_call_a_channel(scene):
    ts, run = await begun(scene)
    await run.progress("tool:start", tool="read_file", args={}, id="1", label="Reading <!channel> & <@U0BEN>.md")
    status = await scene.posted("general", ts, "Reading")
    assert "<!" not in status.text
    assert "<@" not in status.text
    assert "Reading <!channel> & <@U0BEN>.md" in html.unescape(status.text)
    await run.answer("ok")


@pytest.mark.parametrize("fault", [DropsBefore(), Breaks(503), Breaks(200)])
@pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
async def test_a_slack_that_fails_at_the_start_is_not_blamed_on_a_token(slack, runs, method, fault):
    slack.faults.next(method, fault, times=4)
    access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
    with pytest.raises(ConnectionRefused) as refusal:
        async with connected(access, [ALPHA], FakeSessionManager(), runs):
            pass
    assert "does not accept" not in str(refusal.value)


async def test_an_address_that_is_no_web_api_is_not_blamed_on_a_token(slack, runs):
    with pytest.raises(ConnectionRefused) as refusal:
        async with connected(
            SlackCredentials(slack.bot_token, slack.url, SocketTransport(slack.app_token)),
            [ALPHA],
            FakeSessionManager(),
            runs,
        ):
            pass
    assert "does not accept" not in str(refusal.value)
    assert "SLACK_API_URL" in str(refusal.value)


async def test_a_rate_limit_at_the_start_is_waited_for(slack, runs):
    slack.faults.next("auth.test", RateLimits(0))
    slack.faults.next("apps.connections.open", RateLimits(0))
    async with connected(
        SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token)),
        [ALPHA],
        FakeSessionManager(),
        runs,
    ):
        await slack.until(lambda ws: ws.bot_online)


async def test_a_socket_that_slack_refreshes_over_and_over_loses_and_doubles_nothing(scene, of_bot):
    roots = []
    for number in range(3):
        opened = scene.slack.socket_mode.opened
        scene.slack.socket_mode.disconnect("refresh_requested")
        roots.append(await scene.ana.say("general", f"@alpha {number}"))
        await scene.slack.until(lambda _, before=opened: scene.slack.socket_mode.opened > before)
    runs = {run.prompt: run for run in [await scene.sessions.next_run() for _ in roots]}
    assert sorted(runs) == ["0", "1", "2"]
    for number, root in enumerate(roots):
        await runs[str(number)].answer(f"answer {number}")
        assert of_bot(await scene.quiet("general", root)) == [f"answer {number}"]


async def test_leaving_does_not_wait_for_a_run_that_would_begin_only_then(slack, runs):
    sessions, posts, lookup = FakeSessionManager(), asyncio.Event(), asyncio.Event()
    access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))

    async def let_go() -> None:
        await slack.until(lambda ws: not ws.bot_online)
        lookup.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await sessions.next_run()
        posts.set()

    async with (
        asyncio.timeout(8),
        asyncio.TaskGroup() as tasks,
        connected(access, [ALPHA], sessions, runs, shutdown_grace_s=2),
    ):
        ts = await slack.as_person("ana").say("general", "@alpha look")
        run = await sessions.next_run()
        await slack.until(lambda ws: ws.thread(slack.channel("general").id, ts)[1:])
        # One run is on its way out and stays there until a message to another thread has its author's name.
        slack.faults.next("chat.postMessage", Waits(posts))
        slack.faults.next("users.info", Waits(lookup))
        await run.answer("the answer")
        await slack.as_person("ben").say("random", "@alpha one more")
        await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
        tasks.create_task(let_go())
