from __future__ import annotations

import pytest
from fake_sessions import FakeSessionManager

from connector import ConnectionRefused, Instance, Persona, SlackCredentials, SocketTransport, connected
from local_slack import Breaks, DropsAfterwards, DropsBefore, LocalSlack, RateLimits, Refuses
from service.runs.runs import StoredRuns

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))


@pytest.mark.parametrize(
    "fault", [DropsBefore(), DropsAfterwards(), Breaks(503), RateLimits(0), Refuses("fatal_error")]
)
async def test_an_answer_reaches_the_thread_exactly_once_whatever_slack_does(scene, of_bot, fault):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    scene.slack.faults.next("chat.postMessage", fault)
    await run.answer("the answer")
    assert of_bot(await scene.quiet("general", ts)) == ["the answer"]


@pytest.mark.parametrize("method", ["chat.update", "chat.delete", "reactions.add", "reactions.remove"])
async def test_a_decoration_that_fails_for_good_does_not_keep_the_answer_from_the_thread(scene, of_bot, method):
    scene.slack.faults.next(method, Refuses("internal_error"), times=10)
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await run.progress("thinking", iteration=1)
    await run.answer("the answer")
    await scene.posted("general", ts, "the answer")


async def test_a_run_without_a_status_message_still_answers(scene, of_bot):
    scene.slack.faults.next("chat.postMessage", Refuses("invalid_arguments"))
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.slack.until(lambda _: not scene.slack.faults.pending("chat.postMessage"))
    await run.answer("the answer")
    assert of_bot(await scene.quiet("general", ts)) == ["the answer"]


async def test_what_is_written_while_the_socket_is_down_arrives_once_it_is_back(scene):
    scene.slack.socket_mode.drop()
    await scene.ana.say("general", "@alpha are you there")
    run = await scene.sessions.next_run()
    assert run.prompt == "are you there"
    await run.answer("yes")
    await scene.slack.until(lambda _: scene.sessions.idle)


async def test_a_wrong_bot_token_is_one_clear_sentence(slack, runs):
    await _refused(
        runs,
        SlackCredentials("xoxb-wrong", slack.api_url, SocketTransport(slack.app_token)),
        "SLACK_BOT_TOKEN (invalid_auth)",
    )


async def test_a_wrong_app_token_is_one_clear_sentence(slack, runs):
    await _refused(
        runs,
        SlackCredentials(slack.bot_token, slack.api_url, SocketTransport("xapp-wrong")),
        "SLACK_APP_TOKEN (invalid_auth)",
    )


async def test_an_unreachable_slack_is_one_clear_sentence(runs):
    async with LocalSlack() as gone:
        url = gone.api_url
    await _refused(
        runs, SlackCredentials("xoxb-b", url, SocketTransport("xapp-a")), f"Slack cannot be reached at {url}"
    )


async def _refused(runs: StoredRuns, access: SlackCredentials, sentence: str) -> None:
    with pytest.raises(ConnectionRefused) as refusal:
        async with connected(access, [ALPHA], FakeSessionManager(), runs):
            pass
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)
