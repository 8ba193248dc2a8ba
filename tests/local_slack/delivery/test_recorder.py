"""The record: one JSON object per line for each thing that happened."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_errors import error_of

from local_slack import Duplicated, ErrorResponse, RetrySchedule
from local_slack.delivery.recorder import Recorder


def entries(slack, *kinds):
    return [entry for entry in slack.record if entry["what"] in kinds]


async def test_an_event_is_recorded_from_the_post_to_the_acknowledgement(slack, ana, socket):
    ts = await ana.say("general", "hi")
    await socket.acked_event()
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
    recorded = event, sent, acked = entries(slack, "event", "sent", "acked")
    assert [entry["what"] for entry in recorded] == ["event", "sent", "acked"]
    assert {entry["envelope"] for entry in recorded} == {"envelope-000001"}
    assert (event["about"], event["team"], event["event"]["ts"]) == ("message", "T0LOCAL", ts)
    assert (sent["attempt"], acked["attempt"]) == (0, 0)
    assert acked["latency_ms"] >= 0
    assert recorded == sorted(recorded, key=lambda entry: entry["at"])


@pytest.mark.slack(retries=RetrySchedule(0.01, (0.0,)))
async def test_an_event_without_an_acknowledgement_is_recorded_until_it_is_given_up(slack, ana, socket):
    await ana.say("general", "hi")
    await slack.until(lambda _: entries(slack, "given_up"))
    recorded = [(e["what"], e["attempt"], e["reason"]) for e in entries(slack, "not_acked", "given_up")]
    assert recorded == [("not_acked", 0, "timeout"), ("given_up", 1, "timeout")]


async def test_a_call_is_recorded_with_its_arguments_and_its_result(slack, client):
    await client.chat_postMessage(channel="C0GENERAL", text="hi")
    await error_of(client.chat_postMessage(channel="C0NOWHERE", text="hi"))
    fine, refused = entries(slack, "call")
    expected = {"method": "chat.postMessage", "by": "U0ALPHA", "status": 200, "ok": True, "error": None}
    assert expected.items() <= fine.items()
    assert fine["arguments"]["text"] == "hi"
    assert fine["duration_ms"] >= 0
    assert (refused["ok"], refused["error"]) == (False, "channel_not_found")


async def test_faults_and_connections_are_recorded(slack, ana, client, sockets):
    slack.faults.next("auth.test", ErrorResponse("internal_error"))
    slack.deliveries.next(Duplicated())
    await error_of(client.auth_test())
    assert entries(slack, "call")[-1]["fault"] == "error_response"
    _socket = await sockets.open()
    await ana.say("general", "hi")
    assert [(e["kind"], e["envelope"]) for e in entries(slack, "fault")] == [("duplicated", "envelope-000001")]
    assert len(entries(slack, "sent")) == 2
    slack.socket_mode.drop()
    slack.socket_mode.disconnect("link_disabled")
    recorded = entries(slack, "socket_opened", "drop", "socket_closed", "disconnect")
    expected = [("socket_opened", 1), ("drop", 1), ("socket_closed", 0), ("disconnect", 0)]
    assert [(entry["what"], entry["connections"]) for entry in recorded] == expected


async def test_no_token_is_recorded(slack, ana, session):
    tokens = (slack.bot_token, slack.app_token, slack.config_token, ana.person.token)
    for token in tokens:
        async with session.post(slack.api_url + "auth.test", data={"token": token}):
            pass
        await ana.say("general", f"my token is\n{token}, keep it")
    assert "my token is\\n(a token), keep it" in slack.record.text
    assert [token for token in (*tokens, slack.signing_secret) if token in slack.record.text] == []


async def test_the_record_is_served_as_json_lines(slack, ana, session):
    await ana.say("general", "zwei\nZeilen  hier")
    async with session.get(slack.url + "record.jsonl") as answer:
        assert answer.content_type == "application/x-ndjson"
        event, call = [json.loads(line) for line in (await answer.text()).split("\n") if line]
    assert (event["what"], call["what"], call["arguments"]["text"]) == ("event", "call", "zwei\nZeilen  hier")


def test_the_newest_entries_are_kept_and_long_texts_truncated():
    record = Recorder(kept=3)
    for number in range(5):
        record.note("counted", number=number)
    assert [entry["number"] for entry in record] == [2, 3, 4]
    record.clear()
    assert (len(record), record.text) == (0, "")
    record.call({"method": "m", "arguments": {"blocks": [{"text": "x" * 5000}]}, "answer": {}, "fault": None})
    (entry,) = record
    assert entry["arguments"]["blocks"][0]["text"].endswith("… (5000 characters)")


def test_half_a_surrogate_pair_is_written(tmp_path):
    record = Recorder()
    with (tmp_path / "record").open("w", encoding="utf-8") as file:
        record.write_to = file
        record.note("noted", text="\ud83d")
    assert json.loads((tmp_path / "record").read_text(encoding="utf-8"))["text"] == "\ud83d"


values = st.recursive(
    st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@settings(max_examples=30)
@given(values)
def test_any_value_is_recorded_in_one_line_of_json(value):
    record = Recorder()
    record.note("noted", value=value)
    assert record.text.count("\n") == 1
    json.loads(record.text)
