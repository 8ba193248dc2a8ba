"""The record: what happened, one JSON object per line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import Duplicated, ErrorResponse, LocalSlack, RetrySchedule
from local_slack.delivery.recorder import Recorder

Json = dict[str, Any]


def of(slack: LocalSlack, what: str) -> list[Json]:
    return [entry for entry in slack.record if entry["what"] == what]


async def test_an_event_can_be_followed_from_the_post_to_the_ack(slack: LocalSlack, raw_sockets: Any) -> None:
    socket = await raw_sockets(slack).open()
    ts = await slack.as_person("ana").say("general", "hi")
    await socket.acked_event()
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
    story = [entry for entry in slack.record if entry["what"] in {"event", "sent", "acked"}]
    assert [entry["what"] for entry in story] == ["event", "sent", "acked"]
    assert {entry["envelope"] for entry in story} == {"envelope-000001"}
    event, sent, acked = story
    assert (event["about"], event["team"], event["event"]["ts"]) == ("message", "T0LOCAL", ts)
    assert (sent["attempt"], acked["attempt"]) == (0, 0)
    assert acked["latency_ms"] >= 0
    assert story == sorted(story, key=lambda entry: entry["at"])


async def test_what_nobody_acknowledges_is_told_until_it_is_given_up(raw_sockets: Any) -> None:
    async with LocalSlack(retries=RetrySchedule(0.01, (0.0,))) as slack:
        _socket = await raw_sockets(slack).open()
        await slack.as_person("ana").say("general", "hi")
        await slack.until(lambda _: of(slack, "given_up"))
        assert [(e["attempt"], e["reason"]) for e in of(slack, "not_acked")] == [(0, "timeout")]
        assert [(e["attempt"], e["reason"]) for e in of(slack, "given_up")] == [(1, "timeout")]


async def test_a_call_is_there_with_its_arguments_and_what_it_came_to(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    await client.chat_postMessage(channel="C0GENERAL", text="hi")
    with pytest.raises(SlackApiError):
        await client.chat_postMessage(channel="C0NOWHERE", text="hi")
    fine, refused = of(slack, "call")
    assert (fine["method"], fine["by"], fine["status"], fine["ok"], fine["error"]) == (
        "chat.postMessage",
        "U0ALPHA",
        200,
        True,
        None,
    )
    assert fine["arguments"]["text"] == "hi"
    assert fine["duration_ms"] >= 0
    assert (refused["ok"], refused["error"]) == (False, "channel_not_found")


async def test_faults_and_connections_are_there(slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any) -> None:
    slack.faults.next("auth.test", ErrorResponse("internal_error"))
    slack.deliveries.next(Duplicated())
    with pytest.raises(SlackApiError):
        await client.auth_test()
    assert of(slack, "call")[-1]["fault"] == "error_response"
    _socket = await raw_sockets(slack).open()
    await slack.as_person("ana").say("general", "hi")
    assert [(e["kind"], e["envelope"]) for e in of(slack, "fault")] == [("duplicated", "envelope-000001")]
    assert len(of(slack, "sent")) == 2
    slack.socket_mode.drop()
    slack.socket_mode.disconnect("link_disabled")
    connections = ("socket_opened", "drop", "socket_closed", "disconnect")
    assert [(e["what"], e["connections"]) for e in slack.record if e["what"] in connections] == [
        ("socket_opened", 1),
        ("drop", 1),
        ("socket_closed", 0),
        ("disconnect", 0),
    ]


async def test_no_token_is_ever_in_it(slack: LocalSlack, session: aiohttp.ClientSession) -> None:
    ana = slack.as_person("ana")
    tokens = (slack.bot_token, slack.app_token, slack.config_token, ana.person.token)
    for token in tokens:
        async with session.post(slack.api_url + "auth.test", data={"token": token}):
            pass
        await ana.say("general", f"my token is\n{token}, keep it")
    assert slack.signing_secret not in slack.record.text
    assert "my token is\\n(a token), keep it" in slack.record.text
    for token in tokens:
        assert token not in slack.record.text


async def test_it_is_served_as_json_lines(slack: LocalSlack, session: aiohttp.ClientSession) -> None:
    await slack.as_person("ana").say("general", "zwei\nZeilen  hier")
    async with session.get(slack.url + "record.jsonl") as answer:
        assert answer.content_type == "application/x-ndjson"
        text = await answer.text()
    entries = [json.loads(line) for line in text.split("\n") if line]
    assert [entry["what"] for entry in entries] == ["event", "call"]
    assert entries[1]["arguments"]["text"] == "zwei\nZeilen  hier"


def test_it_keeps_the_latest_and_long_texts_are_cut() -> None:
    record = Recorder(kept=3)
    for number in range(5):
        record.note("counted", number=number)
    assert [entry["number"] for entry in record] == [2, 3, 4]
    record.clear()
    assert (len(record), record.text) == (0, "")
    call = {"method": "m", "arguments": {"blocks": [{"text": "x" * 5000}]}, "answer": None, "fault": ""}
    record.call(call)
    (entry,) = record
    assert entry["arguments"]["blocks"][0]["text"].endswith("… (5000 characters)")


def test_it_writes_as_it_goes() -> None:
    record, file = Recorder(clock=lambda: 1.5), io.StringIO()
    record.write_to = file
    record.note("seen")
    assert file.getvalue() == '{"at": 1.5, "what": "seen"}\n'


def test_half_a_character_is_written_too(tmp_path: Path) -> None:
    record = Recorder()
    with (tmp_path / "record").open("w", encoding="utf-8") as file:
        record.write_to = file
        record.note("noted", text="\ud83d")
    assert json.loads((tmp_path / "record").read_text(encoding="utf-8"))["text"] == "\ud83d"


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_whatever_is_noted_stays_one_line_of_json(value: Any) -> None:
    record = Recorder()
    record.note("noted", value=value)
    assert record.text.count("\n") == 1
    json.loads(record.text)
