"""Events over HTTP: signed requests to a request URL, with retries."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from endpoint import endpoint, status
from slack_sdk.signature import SignatureVerifier

from local_slack import Dropped, Duplicated, LocalSlack, LocalSlackError, RetrySchedule

QUICK = RetrySchedule(ack_timeout_s=3, delays_s=(0.0, 0.02, 0.02))
IMPATIENT = RetrySchedule(ack_timeout_s=0.2, delays_s=(0.0, 0.02, 0.02))


@pytest.fixture
async def app():
    """The request URL of an app."""
    async with endpoint() as app:
        yield app


@pytest.fixture
async def slack(app):
    async with LocalSlack(retries=QUICK, request_url=app.url) as slack:
        yield slack


async def settled(slack):
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)


def given_up(slack):
    return [entry["reason"] for entry in slack.record if entry["what"] == "given_up"]


def retry_of(request):
    return (request.headers.get("X-Slack-Retry-Num"), request.headers.get("X-Slack-Retry-Reason"))


def verifies(secret, request):
    return SignatureVerifier(secret).is_valid_request(request.body, dict(request.headers))


async def test_an_event_is_a_signed_json_request_after_the_challenge(slack, ana, app):
    ts = await ana.say("general", "höre @alpha")
    message, mention = await app.received(2)
    assert {message.json["event"]["type"], mention.json["event"]["type"]} == {"message", "app_mention"}
    assert {message.json["event"]["ts"], message.json["team_id"]} == {ts, "T0LOCAL"}
    (challenge,) = app.challenges
    for request in (message, mention, challenge):
        assert verifies(slack.signing_secret, request)
        assert request.headers["Content-Type"] == "application/json"
        assert request.headers["User-Agent"].startswith("Slackbot 1.0")
        assert "X-Slack-Retry-Num" not in request.headers
    assert set(challenge.json) == {"token", "challenge", "type"}
    await settled(slack)


async def test_the_signature_depends_on_the_secret(app):
    async with LocalSlack(request_url=app.url, signing_secret="of this app") as slack:
        await slack.as_person("ana").say("general", "hi")
        (request,) = await app.received(1)
        assert [verifies(secret, request) for secret in ("of this app", "of another")] == [True, False]


async def test_a_refused_event_is_retried_with_its_number_and_reason(slack, ana, app):
    app.answers += [status(503), status(404), status(204)]
    await ana.say("general", "hi")
    requests = await app.received(3)
    await settled(slack)
    assert len({request.json["event_id"] for request in requests}) == 1
    assert [retry_of(request) for request in requests] == [(None, None), ("1", "http_error"), ("2", "http_error")]


async def test_a_late_answer_is_a_timeout(app):
    late = asyncio.Event()
    app.answers.append(late)
    async with LocalSlack(retries=IMPATIENT, request_url=app.url) as slack:
        await slack.as_person("ana").say("general", "hi")
        _, again, *_ = await app.received(2)
        assert retry_of(again) == ("1", "http_timeout")
        late.set()
        await settled(slack)


async def test_after_the_last_retry_an_event_is_given_up(slack, ana, app):
    app.answers += [status(500)] * 4
    await ana.say("general", "hi")
    await settled(slack)
    assert (len(app.requests), given_up(slack)) == (4, ["http_error"])


async def test_an_app_can_forbid_a_retry(slack, ana, app):
    app.answers.append(status(500, X_Slack_No_Retry="1"))
    await ana.say("general", "hi")
    await settled(slack)
    assert len(app.requests) == 1


async def test_at_most_two_redirects_are_followed(slack, ana, app):
    redirect = status(307, Location=app.url)
    app.answers += [redirect, redirect, status(200), *[redirect] * 12]
    await ana.say("general", "one")
    await settled(slack)
    assert (len(app.requests), given_up(slack)) == (3, [])
    await ana.say("general", "two")
    await settled(slack)
    assert given_up(slack) == ["too_many_redirects"]


async def test_an_app_that_starts_later_receives_the_event():
    async with endpoint() as app:
        url = app.url
    async with LocalSlack(retries=RetrySchedule(3, (0.02,) * 200), request_url=url) as slack:
        ts = await slack.as_person("ana").say("general", "hi")
        await slack.until(lambda _: any(entry["what"] == "not_acked" for entry in slack.record))
        problem = next(entry["problem"] for entry in slack.record if entry["what"] == "url_verification")
        assert "cannot be reached" in problem
        async with endpoint(int(url.split(":")[2].split("/")[0])) as app:
            (request,) = await app.received(1)
            assert request.json["event"]["ts"] == ts
            assert len(app.challenges) == 1
            await settled(slack)


@pytest.mark.parametrize(
    ("echo", "message"),
    [
        (lambda _: web.Response(text="ok"), "does not return the value"),
        (lambda challenge: web.Response(status=403, text=challenge), "HTTP 403"),
        (lambda _: web.json_response(["challenge"]), "does not return the value"),
        (lambda _: web.Response(body=b"\xff", content_type="text/plain", charset="utf-8"), "does not return the value"),
    ],
)
async def test_a_url_that_does_not_return_the_challenge_is_refused(app, echo, message):
    app.echo = echo
    async with LocalSlack(retries=QUICK) as slack:
        with pytest.raises(LocalSlackError, match=message):
            await slack.deliver_to(app.url)
        await slack.as_person("ana").say("general", "hi")
        assert not app.requests
        assert slack.socket_mode.delivery.outstanding == 1


@pytest.mark.parametrize(
    "echo",
    [
        lambda challenge: web.json_response({"challenge": challenge}),
        lambda challenge: web.Response(text=f"challenge={challenge}", content_type="application/x-www-form-urlencoded"),
    ],
)
async def test_the_challenge_may_be_returned_as_json_or_as_a_form(app, echo):
    app.echo = echo
    async with LocalSlack() as slack:
        await slack.deliver_to(app.url)
        assert slack.workspace.bot_online


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/x", "http://", "http://127.0.0.1:99999/", "http://[::/"])
async def test_an_invalid_request_url_is_an_error(slack, url):
    with pytest.raises(LocalSlackError, match="not a request URL"):
        await slack.deliver_to(url)


async def test_the_transport_can_change_at_run_time(app, raw_sockets):
    async with LocalSlack() as slack:
        ana, socket = slack.as_person("ana"), await raw_sockets(slack).open()
        await slack.deliver_to(app.url)
        over_http = await ana.say("general", "one")
        (request,) = await app.received(1)
        assert request.json["event"]["ts"] == over_http
        await settled(slack)
        await slack.deliver_to(None)
        over_socket = await ana.say("general", "two")
        assert (await socket.acked_event())["ts"] == over_socket
        assert len(app.requests) == 1


async def test_delivery_faults_work_over_http(app):
    async with LocalSlack(retries=IMPATIENT, request_url=app.url) as slack:
        slack.deliveries.next(Duplicated())
        slack.deliveries.next(Dropped())
        ana = slack.as_person("ana")
        await ana.say("general", "one")
        one, again = await app.received(2)
        assert one.json == again.json
        await settled(slack)
        await ana.say("general", "two")
        assert retry_of((await app.received(3))[2]) == ("1", "http_timeout")


async def test_a_click_is_a_signed_form_and_is_not_retried(slack, ana, app, client):
    button = {"type": "button", "action_id": "go", "value": "7", "text": {"type": "plain_text", "text": "Go"}}
    blocks = [{"type": "actions", "elements": [button]}]
    ts = (await client.chat_postMessage(channel="C0GENERAL", text="x", blocks=blocks))["ts"]
    await app.received(1)
    await ana.click("general", ts, "go")
    *_, request = await app.received(2)
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert verifies(slack.signing_secret, request)
    payload = json.loads(parse_qs(request.body.decode())["payload"][0])
    assert (payload["type"], payload["actions"][0]["value"]) == ("block_actions", "7")
    app.answers.append(status(500))
    with pytest.raises(LocalSlackError, match="http_500"):
        await ana.click("general", ts, "go")
    assert len(app.requests) == 3


async def test_too_many_events_are_announced(slack, app):
    slack.notify_rate_limited()
    (request,) = await app.received(1)
    notice = request.json
    assert (notice["type"], notice["team_id"], notice["api_app_id"]) == ("app_rate_limited", "T0LOCAL", "A0ALPHA")
    assert notice["minute_rate_limited"] % 60 == 0
    assert "event" not in notice
