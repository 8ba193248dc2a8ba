"""Events over HTTP: what is not Slack's does nothing, and what is Slack's is answered in time."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from connector import ConnectionRefused, HttpTransport
from connector.inbound.http_server import HttpServer, Malformed, body_of
from connector.inbound.reception import Reply
from connector.inbound.signature import flaw_of, signature_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
NOW_S = 1_531_420_618
EVENT = {"type": "event_callback", "team_id": "T1", "event": {"type": "message"}}


class Reception:
    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.reply = Reply(200)
        self.has_begun = asyncio.Event()
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.done = asyncio.Semaphore(0)

    async def receive(self, body: dict[str, Any]) -> Reply:
        self.bodies.append(body)
        self.has_begun.set()
        await self.may_go.wait()
        self.done.release()
        return self.reply


class Slack:
    """Sends requests, signed as Slack signs them."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self.url = f"http://127.0.0.1:{port}"

    async def send(self, raw: bytes, content_type: str = "application/json", **headers: str | None) -> tuple[int, str]:
        timestamp = str(NOW_S)
        sent = {
            "Content-Type": content_type,
            "X-Slack-Request-Timestamp": timestamp,
            "X-Slack-Signature": signature_of(SECRET, timestamp, raw),
            **{f"X-Slack-{name.replace('_', '-').title()}": value for name, value in headers.items()},
        }
        given = {name: value for name, value in sent.items() if value is not None}
        async with self._http.post(f"{self.url}/slack/events", data=io.BytesIO(raw), headers=given) as response:
            return response.status, await response.text()

    async def event(self, body: Any = EVENT, **headers: str | None) -> tuple[int, str]:
        return await self.send(json.dumps(body).encode(), **headers)


@pytest.fixture
def reception() -> Reception:
    return Reception()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


@pytest.fixture
async def slack(http, reception) -> AsyncIterator[Slack]:
    door = HttpTransport(SECRET, "127.0.0.1", 0)
    async with HttpServer(
        door, reception.receive, asyncio.Semaphore(2), answer_within_s=0.2, now_s=lambda: NOW_S
    ) as server:
        yield Slack(http, server.port)


async def test_what_slack_has_signed_is_received(slack, reception):
    assert await slack.event() == (200, "")
    assert reception.bodies == [EVENT]


async def test_the_signature_of_slacks_own_example_fits():
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url="
        b"https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
        b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert flaw_of(SECRET, "1531420618", signature, body, NOW_S) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"signature": None},
        {"request_timestamp": None},
        {"signature": ""},
        {"signature": "v0=" + "0" * 64},
        {"signature": "v1=" + "0" * 64},
        {"signature": "v0=" + "ü" * 64},
        {"signature": "v0=" + "٣" * 64},
        {"request_timestamp": "yesterday"},
        {"request_timestamp": "١٥٣١٤٢٠٦١٨"},
        {"request_timestamp": "-1"},
        {"request_timestamp": "1e9"},
        {"request_timestamp": "9" * 400},
        {"request_timestamp": str(NOW_S + 1)},
    ],
)
async def test_a_request_without_slacks_signature_is_refused_and_nothing_comes_of_it(slack, reception, headers):
    status, text = await slack.event(**headers)
    assert (status, text) == (401, "This request is not signed by Slack for this app.\n")
    assert reception.bodies == []


@pytest.mark.parametrize(("age_s", "status"), [(0, 200), (299, 200), (-299, 200), (301, 401), (-301, 401)])
async def test_a_request_is_good_for_five_minutes(slack, age_s, status):
    timestamp = str(NOW_S - age_s)
    signature = signature_of(SECRET, timestamp, json.dumps(EVENT).encode())
    assert (await slack.event(request_timestamp=timestamp, signature=signature))[0] == status


async def test_a_wrong_clock_and_a_wrong_secret_are_told_apart_in_the_log(slack):
    old = str(NOW_S - 4000)
    with capture_logs() as logs:
        await slack.event(request_timestamp=old, signature=signature_of(SECRET, old, json.dumps(EVENT).encode()))
        await slack.event(signature="v0=" + "0" * 64)
    assert ["clock" in log["why"] for log in logs] == [True, False]
    assert "signing secret" in logs[1]["why"]


@given(st.binary(max_size=200), st.integers(0, 10**9), st.data())
def test_no_other_bytes_have_the_same_signature(body, number, data):
    timestamp = str(number)
    signature = signature_of(SECRET, timestamp, body)
    assert flaw_of(SECRET, timestamp, signature, body, number) is None
    other = data.draw(st.binary(max_size=200).filter(lambda drawn: drawn != body))
    assert flaw_of(SECRET, timestamp, signature, other, number) is not None
    assert flaw_of(f"{SECRET}x", timestamp, signature, body, number) is not None


@given(st.text(max_size=80), st.text(max_size=80))
def test_whatever_stands_in_the_headers_is_looked_at_and_refused(timestamp, signature):
    assert flaw_of(SECRET, timestamp, signature, b"{}", NOW_S) is not None


async def test_the_challenge_is_answered(slack, reception):
    status, text = await slack.event({"type": "url_verification", "challenge": "3eZbrw1aB", "token": "t"})
    assert (status, json.loads(text)) == (200, {"challenge": "3eZbrw1aB"})
    assert reception.bodies == []


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"null", "application/json"),
        (b'"text"', "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"event": %s}' % (b"[" * 800 + b"]" * 800), "application/json"),
        (b"payload=" + b"[" * 100_000, "application/x-www-form-urlencoded"),
        (b"payload=%7B%22a%22:" + b"[" * 800 + b"]" * 800 + b"%7D", "application/x-www-form-urlencoded"),
        (b"", "application/x-www-form-urlencoded"),
        (b"payload", "application/x-www-form-urlencoded"),
        (b"payload=%7B", "application/x-www-form-urlencoded"),
        (b"payload=%FF", "application/x-www-form-urlencoded"),
        (b"payload=[]", "application/x-www-form-urlencoded"),
        (b"\xff=1", "application/x-www-form-urlencoded"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused(slack, reception, raw, content_type):
    assert (await slack.send(raw, content_type))[0] == 400
    assert reception.bodies == []


@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(str.encode),
        st.text('payload=&%7B{}"[]+;', max_size=60).map(str.encode),
    ),
    st.sampled_from(["application/json", "application/x-www-form-urlencoded", "text/plain"]),
)
def test_whatever_stands_in_a_body_is_an_object_or_refused(raw, content_type):
    with contextlib.suppress(Malformed):
        assert isinstance(body_of(raw, content_type), dict)


async def test_a_click_comes_in_the_field_of_a_form(slack, reception):
    click = {"type": "block_actions", "actions": [{"action_id": "stop", "value": "a&b=c ü"}]}
    raw = urlencode({"payload": json.dumps(click)}).encode()
    assert await slack.send(raw, "application/x-www-form-urlencoded") == (200, "")
    assert reception.bodies == [click]


async def test_a_command_comes_as_a_form(slack, reception):
    raw = urlencode({"command": "/agent", "text": "", "user_id": "U1"}).encode()
    assert (await slack.send(raw, "application/x-www-form-urlencoded"))[0] == 200
    assert reception.bodies == [{"command": "/agent", "text": "", "user_id": "U1"}]


async def test_what_slack_is_to_be_told_is_the_body_of_the_answer(slack, reception):
    reception.reply = Reply(200, {"text": "so"})
    status, text = await slack.event()
    assert (status, json.loads(text)) == (200, {"text": "so"})


@pytest.mark.parametrize("size", [1024 * 1024, 3 * 1024 * 1024])
async def test_a_body_that_is_too_large_is_refused(slack, reception, size):
    assert (await slack.send(b" " * (size + 1)))[0] == 413
    assert reception.bodies == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity", "x"])
async def test_a_body_with_a_content_encoding_is_refused_and_not_unpacked(slack, http, reception, encoding):
    raw = gzip.compress(bytes(100_000_000), 9)
    headers = {"Content-Encoding": encoding, "X-Slack-Request-Timestamp": str(NOW_S)}
    headers["X-Slack-Signature"] = signature_of(SECRET, str(NOW_S), raw)
    async with http.post(f"{slack.url}/slack/events", data=io.BytesIO(raw), headers=headers) as response:
        assert response.status == 415
    assert reception.bodies == []


class Strangers:
    """Connections of which nobody knows whose they are."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, sent: bytes = b"POST /slack/events HTTP/1.1\r\n") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        writer.write(sent)
        return reader

    def send(self, more: bytes) -> None:
        self._writers[-1].write(more)

    def leave(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def bounded(reception, **bounds: Any) -> AsyncIterator[Strangers]:
    door = HttpTransport(SECRET, "127.0.0.1", 0)
    async with HttpServer(door, reception.receive, asyncio.Semaphore(9), now_s=lambda: NOW_S, **bounds) as server:
        strangers = Strangers(server.port)
        try:
            yield strangers
        finally:
            strangers.leave()
            await asyncio.sleep(0)


@pytest.mark.parametrize("sent", [b"", b"POST /slack/events HTTP/1.1\r\nHost: a\r\n"])
async def test_a_connection_that_sends_no_whole_headers_is_closed(reception, sent):
    async with bounded(reception, headers_within_s=0.05) as strangers, asyncio.timeout(5):
        assert await (await strangers.open(sent)).read() == b""


async def test_of_too_many_connections_the_one_that_has_waited_longest_is_closed(reception, http):
    async with bounded(reception, most_connections=2) as strangers, asyncio.timeout(5):
        first, second = await strangers.open(), await strangers.open()
        assert (await Slack(http, strangers.port).event())[0] == 200
        assert await first.read() == b""
        assert not second.at_eof()
        assert await (await strangers.open()).read(0) == b""
        assert await second.read() == b"", "the connection of the request came later"


async def test_a_connection_that_is_at_work_is_not_closed_for_a_new_one(reception, http):
    reception.may_go.clear()
    async with bounded(reception, most_connections=1) as strangers, asyncio.timeout(5):
        answer = asyncio.create_task(Slack(http, strangers.port).event())
        await reception.has_begun.wait()
        assert await (await strangers.open()).read() == b""
        reception.may_go.set()
        assert (await answer)[0] == 200


async def test_a_thousand_half_open_connections_keep_no_request_out(reception, http):
    async with bounded(reception, most_connections=50) as strangers, asyncio.timeout(20):
        readers = [await strangers.open() for _ in range(400)]
        assert (await Slack(http, strangers.port).event())[0] == 200
        closed = [reader for reader in readers if reader.at_eof()]
        assert len(closed) >= 350


BODY = b"POST /slack/events HTTP/1.1\r\nHost: a\r\n"


async def test_bodies_without_end_keep_no_request_out_and_leave_no_traceback(reception, caplog):
    async with bounded(reception, most_connections=20, answer_within_s=60.0) as strangers, asyncio.timeout(20):
        readers = [await strangers.open(BODY + b"Content-Length: 1000\r\n\r\n{") for _ in range(20)]
        for _ in range(5):
            async with aiohttp.ClientSession() as http:
                assert (await Slack(http, strangers.port).event())[0] == 200
            readers += [await strangers.open(BODY + b"Content-Length: 1000\r\n\r\n{") for _ in range(20)]
        assert [await reader.read() for reader in readers[:80]] == [b""] * 80
    assert not caplog.records, "the library's own log"


async def test_a_chunk_that_cannot_be_read_ends_its_request_at_once(reception, caplog):
    with capture_logs() as logs:
        async with bounded(reception, answer_within_s=60.0) as strangers, asyncio.timeout(5):
            head = BODY + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
            reader = await strangers.open(head)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            strangers.send(b"2\r\n{}\r\nnothing\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
    told = [(each["event"], each["log_level"]) for each in logs if each["event"] != "http.listens"]
    assert told == [("http.garbage", "info")]
    assert not caplog.records, "the library's own log"


async def test_a_body_that_is_too_slow_is_one_line_in_the_log(reception):
    with capture_logs() as logs:
        async with bounded(reception, answer_within_s=0.05) as strangers, asyncio.timeout(5):
            reader = await strangers.open(BODY + b"Content-Length: 1000\r\n\r\n{")
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    told = [(each["event"], each["log_level"]) for each in logs if each["event"] != "http.listens"]
    assert told == [("http.garbage", "info")]


@pytest.mark.parametrize(
    ("raw", "headers", "told"),
    [
        (b"{}", {"signature": None}, ("http.refused", "info")),
        (b"{}", {"signature": "garbage"}, ("http.refused", "info")),
        (b"{}", {"signature": "v0=" + "0" * 64}, ("http.refused", "warning")),
        (b"{", {}, ("http.malformed", "info")),
    ],
)
async def test_only_what_a_wrong_setting_causes_is_a_warning(slack, raw, headers, told):
    with capture_logs() as logs:
        await slack.send(raw, **headers)
    assert [(each["event"], each["log_level"]) for each in logs] == [told]


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"garbage\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 20_000,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 500 + b"\r\n",
        b"GET / HTTP/1.1\r\n\x00: a\r\n\r\n",
        BODY + b"Content-Length: -1\r\n\r\n",
        BODY + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        BODY + b"Transfer-Encoding: chunked\r\n\r\nnothing\r\n",
        BODY + b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\nhalf",
    ],
)
async def test_what_is_no_http_is_one_line_in_the_log_and_no_traceback(reception, caplog, sent):
    with capture_logs() as logs:
        async with bounded(reception) as strangers, asyncio.timeout(5):
            answer = await (await strangers.open(sent)).readline()
            # Where only half of a body has come, the connection is lost now.
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 100"))
    told = [each for each in logs if each["event"] != "http.listens"]
    assert [(each["event"], each["log_level"]) for each in told] == [("http.garbage", "info")]
    assert len(told[0]["why"]) <= 100
    assert not caplog.records, "the library's own log"


async def test_what_is_not_kept_is_to_come_again(slack, reception):
    reception.reply = Reply(503)
    assert (await slack.event())[0] == 503


async def test_what_is_not_kept_in_time_is_to_come_again_and_is_kept_all_the_same(slack, reception):
    reception.may_go.clear()
    assert (await slack.event())[0] == 503
    reception.may_go.set()
    async with asyncio.timeout(5):
        await reception.done.acquire()


async def test_what_finds_no_slot_waits_and_then_is_to_come_again(slack, reception):
    reception.may_go.clear()
    answers = await asyncio.gather(*(slack.event({**EVENT, "event_id": str(number)}) for number in range(4)))
    assert [status for status, _ in answers] == [503] * 4
    assert len(reception.bodies) == 2, "who waited has done nothing"
    waiting = asyncio.create_task(slack.event())
    reception.may_go.set()
    assert (await waiting)[0] == 200


async def test_other_methods_and_paths_are_told_so_and_health_is_good(slack, http):
    async with http.get(f"{slack.url}/slack/events") as response:
        assert response.status == 405
    async with http.put(f"{slack.url}/slack/events") as response:
        assert response.status == 405
    async with http.post(f"{slack.url}/elsewhere") as response:
        assert response.status == 404
    async with http.get(f"{slack.url}/healthz") as response:
        assert (response.status, await response.text()) == (200, "ok\n")


async def test_a_port_that_is_taken_is_one_clear_sentence(reception):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConnectionRefused, match=f"127.0.0.1 port {port}: another program uses it"):
            async with HttpServer(HttpTransport(SECRET, "127.0.0.1", port), reception.receive, asyncio.Semaphore(1)):
                pass


async def test_an_address_that_is_not_this_machines_is_one_clear_sentence(reception):
    with pytest.raises(ConnectionRefused, match="Check the address"):
        async with HttpServer(HttpTransport(SECRET, "203.0.113.1", 3000), reception.receive, asyncio.Semaphore(1)):
            pass


async def test_leaving_ends_what_is_at_work(http, reception):
    reception.may_go.clear()
    before = asyncio.all_tasks()
    async with HttpServer(
        HttpTransport(SECRET, "127.0.0.1", 0),
        reception.receive,
        asyncio.Semaphore(2),
        answer_within_s=0.05,
        now_s=lambda: NOW_S,
    ) as server:
        assert (await Slack(http, server.port).event())[0] == 503
        ours = {task for task in asyncio.all_tasks() - before if "receive" in repr(task)}
        assert ours
    assert all(task.done() for task in ours)
