"""Events over HTTP: signed requests to a request URL, and again where it does not take them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from endpoint import Endpoint, endpoint, status
from slack_sdk.signature import SignatureVerifier

from local_slack import Dropped, Duplicated, LocalSlack, LocalSlackError, RetrySchedule

QUICK = RetrySchedule(ack_timeout_s=3, delays_s=(0.0, 0.02, 0.02))
IMPATIENT = RetrySchedule(ack_timeout_s=0.2, delays_s=(0.0, 0.02, 0.02))


@pytest.fixture
async def there() -> AsyncIterator[Endpoint]:
    async with endpoint() as open_endpoint:
        yield open_endpoint


@pytest.fixture
async def slack(there: Endpoint) -> AsyncIterator[LocalSlack]:
    async with LocalSlack(retries=QUICK, request_url=there.url) as workspace:
        yield workspace


async def settled(slack: LocalSlack) -> None:
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)


async def test_an_event_is_a_signed_json_request_after_the_challenge(slack: LocalSlack, there: Endpoint) -> None:
    ts = await slack.as_person("ana").say("general", "höre @alpha")
    message, mention = await there.received(2)
    assert {message.json["event"]["type"], mention.json["event"]["type"]} == {"message", "app_mention"}
    assert {message.json["event"]["ts"], message.json["team_id"]} == {ts, "T0LOCAL"}
    verifier = SignatureVerifier(slack.signing_secret)
    (challenge,) = there.challenges
    for request in (message, mention, challenge):
        assert verifier.is_valid_request(request.body, dict(request.headers))
        assert request.headers["Content-Type"] == "application/json"
        assert request.headers["User-Agent"].startswith("Slackbot 1.0")
        assert "X-Slack-Retry-Num" not in request.headers
    assert set(challenge.json) == {"token", "challenge", "type"}
    await settled(slack)


async def test_another_secret_does_not_verify(there: Endpoint) -> None:
    async with LocalSlack(request_url=there.url, signing_secret="of this app") as slack:
        await slack.as_person("ana").say("general", "hi")
        (request,) = await there.received(1)
        headers = dict(request.headers)
        assert SignatureVerifier("of this app").is_valid_request(request.body, headers)
        assert not SignatureVerifier("of another").is_valid_request(request.body, headers)


async def test_what_is_refused_comes_again_with_its_number_and_reason(slack: LocalSlack, there: Endpoint) -> None:
    there.answers += [status(503), status(404), status(204)]
    await slack.as_person("ana").say("general", "hi")
    requests = await there.received(3)
    await settled(slack)
    assert len(requests) == 3
    assert len({request.json["event_id"] for request in requests}) == 1
    told = [(r.headers.get("X-Slack-Retry-Num"), r.headers.get("X-Slack-Retry-Reason")) for r in requests]
    assert told == [(None, None), ("1", "http_error"), ("2", "http_error")]


async def test_an_answer_that_is_too_late_is_none(there: Endpoint) -> None:
    late = asyncio.Event()
    there.answers.append(late)
    async with LocalSlack(retries=IMPATIENT, request_url=there.url) as slack:
        await slack.as_person("ana").say("general", "hi")
        _, again, *_ = await there.received(2)
        assert again.headers["X-Slack-Retry-Reason"] == "http_timeout"
        late.set()
        await settled(slack)


async def test_after_the_last_retry_it_is_given_up(slack: LocalSlack, there: Endpoint) -> None:
    there.answers += [status(500)] * 4
    await slack.as_person("ana").say("general", "hi")
    await settled(slack)
    assert len(there.requests) == 4
    assert [entry["reason"] for entry in slack.record if entry["what"] == "given_up"] == ["http_error"]


async def test_an_app_can_forbid_the_retry(slack: LocalSlack, there: Endpoint) -> None:
    there.answers.append(status(500, X_Slack_No_Retry="1"))
    await slack.as_person("ana").say("general", "hi")
    await settled(slack)
    assert len(there.requests) == 1


async def test_a_redirect_is_followed_twice_and_no_further(slack: LocalSlack, there: Endpoint) -> None:
    onwards = status(307, Location=there.url)
    there.answers += [onwards, onwards, status(200), *[onwards] * 12]
    ana = slack.as_person("ana")
    await ana.say("general", "one")
    await settled(slack)
    assert len(there.requests) == 3
    await ana.say("general", "two")
    await settled(slack)
    assert [entry["reason"] for entry in slack.record if entry["what"] == "given_up"] == ["too_many_redirects"]


async def test_an_app_that_is_not_there_yet_gets_the_event_once_it_is() -> None:
    async with endpoint() as there:
        url = there.url
    often = RetrySchedule(3, (0.02,) * 200)
    async with LocalSlack(retries=often, request_url=url) as slack:
        ts = await slack.as_person("ana").say("general", "hi")
        await slack.until(lambda _: any(entry["what"] == "not_acked" for entry in slack.record))
        problem = next(entry["problem"] for entry in slack.record if entry["what"] == "url_verification")
        assert "cannot be reached" in problem
        async with endpoint(int(url.split(":")[2].split("/")[0])) as there:
            (request,) = await there.received(1)
            assert request.json["event"]["ts"] == ts
            assert len(there.challenges) == 1
            await settled(slack)


@pytest.mark.parametrize(
    ("echo", "says"),
    [
        (lambda _: web.Response(text="ok"), "does not return the value"),
        (lambda challenge: web.Response(status=403, text=challenge), "HTTP 403"),
        (lambda _: web.json_response(["challenge"]), "does not return the value"),
        (
            lambda _: web.Response(body=b"\xff", content_type="text/plain", charset="utf-8"),
            "does not return the value",
        ),
    ],
)
async def test_a_url_that_does_not_echo_the_challenge_is_not_taken(there: Endpoint, echo: Any, says: str) -> None:
    there.echo = echo
    async with LocalSlack(retries=QUICK) as slack:
        with pytest.raises(LocalSlackError, match=says):
            await slack.deliver_to(there.url)
        await slack.as_person("ana").say("general", "hi")
        assert not there.requests
        assert slack.socket_mode.delivery.outstanding == 1


@pytest.mark.parametrize(
    "echo",
    [
        lambda challenge: web.json_response({"challenge": challenge}),
        lambda challenge: web.Response(text=f"challenge={challenge}", content_type="application/x-www-form-urlencoded"),
    ],
)
async def test_a_challenge_may_be_echoed_as_json_and_as_a_form(there: Endpoint, echo: Any) -> None:
    there.echo = echo
    async with LocalSlack() as slack:
        await slack.deliver_to(there.url)
        assert slack.workspace.bot_online


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/x", "http://", "http://127.0.0.1:99999/", "http://[::/"])
async def test_what_is_no_url_is_named(slack: LocalSlack, url: str) -> None:
    with pytest.raises(LocalSlackError, match="not a request URL"):
        await slack.deliver_to(url)


async def test_the_way_can_change_while_it_runs(there: Endpoint, raw_sockets: Any) -> None:
    async with LocalSlack() as slack:
        ana, socket = slack.as_person("ana"), await raw_sockets(slack).open()
        await slack.deliver_to(there.url)
        over_http = await ana.say("general", "one")
        (request,) = await there.received(1)
        assert request.json["event"]["ts"] == over_http
        await settled(slack)
        await slack.deliver_to(None)
        over_socket = await ana.say("general", "two")
        assert (await socket.acked_event())["ts"] == over_socket
        assert len(there.requests) == 1


async def test_the_faults_of_delivery_are_the_same(there: Endpoint) -> None:
    async with LocalSlack(retries=IMPATIENT, request_url=there.url) as slack:
        slack.deliveries.next(Duplicated())
        slack.deliveries.next(Dropped())
        ana = slack.as_person("ana")
        await ana.say("general", "one")
        one, again = await there.received(2)
        assert one.json == again.json
        await settled(slack)
        await ana.say("general", "two")
        lost = (await there.received(3))[2]
        assert (lost.headers["X-Slack-Retry-Num"], lost.headers["X-Slack-Retry-Reason"]) == ("1", "http_timeout")


async def test_a_click_is_a_form_and_comes_once(slack: LocalSlack, there: Endpoint, session: Any) -> None:
    button = {"type": "button", "action_id": "go", "value": "7", "text": {"type": "plain_text", "text": "Go"}}
    body = {"channel": "C0GENERAL", "text": "x", "blocks": [{"type": "actions", "elements": [button]}]}
    headers = {"Authorization": f"Bearer {slack.bot_token}"}
    async with session.post(slack.api_url + "chat.postMessage", json=body, headers=headers) as answer:
        ts = (await answer.json())["ts"]
    await there.received(1)
    await slack.as_person("ana").click("general", ts, "go")
    *_, request = await there.received(2)
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert SignatureVerifier(slack.signing_secret).is_valid_request(request.body, dict(request.headers))
    payload = json.loads(parse_qs(request.body.decode())["payload"][0])
    assert (payload["type"], payload["actions"][0]["value"]) == ("block_actions", "7")
    there.answers.append(status(500))
    with pytest.raises(LocalSlackError, match="http_500"):
        await slack.as_person("ana").click("general", ts, "go")
    assert len(there.requests) == 3


async def test_too_many_events_are_announced_without_an_event(slack: LocalSlack, there: Endpoint) -> None:
    slack.notify_rate_limited()
    (request,) = await there.received(1)
    notice = request.json
    assert (notice["type"], notice["team_id"], notice["api_app_id"]) == ("app_rate_limited", "T0LOCAL", "A0ALPHA")
    assert notice["minute_rate_limited"] % 60 == 0
    assert "event" not in notice
