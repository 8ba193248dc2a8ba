from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import socket
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from connector import ConnectionRefused, HttpTransport
from connector.inbound.dispatcher import Reply
from connector.inbound.http_server import HttpServer, Malformed, body_of, flaw_of, signature_of

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
NOW_S = 1_531_420_618
EVENT = {"type": "event_callback", "team_id": "T1", "event": {"type": "message"}}
FORM = "application/x-www-form-urlencoded"
HEAD = b"POST /slack/events HTTP/1.1\r\nHost: a\r\n"


class Receiver:
    """Receives bodies, once `may_end` is set."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.reply = Reply(200)
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self.done = asyncio.Semaphore(0)

    async def receive(self, body: dict[str, Any]) -> Reply:
        self.bodies.append(body)
        self.has_begun.set()
        await self.may_end.wait()
        self.done.release()
        return self.reply


class Slack:
    """Sends signed requests."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self.url = f"http://127.0.0.1:{port}"

    async def send(self, raw: bytes, content_type: str = "application/json", **headers: str | None) -> tuple[int, str]:
        sent = {
            "Content-Type": content_type,
            "X-Slack-Request-Timestamp": str(NOW_S),
            "X-Slack-Signature": signature_of(SECRET, str(NOW_S), raw),
            **{name.replace("_", "-").title(): value for name, value in headers.items()},
        }
        given = {name: value for name, value in sent.items() if value is not None}
        async with self._http.post(f"{self.url}/slack/events", data=io.BytesIO(raw), headers=given) as response:
            return response.status, await response.text()

    async def event(self, body: Any = EVENT, **headers: str | None) -> tuple[int, str]:
        return await self.send(json.dumps(body).encode(), **headers)


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as http:
        yield http


@pytest.fixture
def serving(receiver):
    """Run a server; yield its port."""

    @asynccontextmanager
    async def serving(slots: int = 9, **limits: Any):
        transport = HttpTransport(SECRET, "127.0.0.1", 0)
        async with HttpServer(
            transport, receiver.receive, asyncio.Semaphore(slots), now_s=lambda: NOW_S, **limits
        ) as server:
            yield server.port

    return serving


@pytest.fixture
async def slack(http, serving):
    async with serving(slots=2, answer_within_s=0.2) as port:
        yield Slack(http, port)


async def test_a_signed_request_is_received(slack, receiver):
    assert await slack.event() == (200, "")
    assert receiver.bodies == [EVENT]


@pytest.mark.parametrize(
    "headers",
    [
        {"x_slack_signature": None},
        {"x_slack_request_timestamp": None},
        {"x_slack_signature": "v0=" + "0" * 64},
        {"x_slack_signature": "v1=" + "0" * 64},
        {"x_slack_signature": "v0=" + "ü" * 64},
        {"x_slack_request_timestamp": "yesterday"},
        {"x_slack_request_timestamp": "١٥٣١٤٢٠٦١٨"},
        {"x_slack_request_timestamp": "9" * 400},
        {"x_slack_request_timestamp": str(NOW_S + 1)},
    ],
)
async def test_a_request_without_a_valid_signature_is_refused(slack, receiver, headers):
    assert await slack.event(**headers) == (401, "This request is not signed by Slack for this app.\n")
    assert receiver.bodies == []


def signed_at(at_s: int) -> dict[str, str]:
    signature = signature_of(SECRET, str(at_s), json.dumps(EVENT).encode())
    return {"x_slack_request_timestamp": str(at_s), "x_slack_signature": signature}


@pytest.mark.parametrize(("age_s", "status"), [(299, 200), (-299, 200), (301, 401), (-301, 401)])
async def test_a_signature_is_valid_for_five_minutes(slack, age_s, status):
    assert (await slack.event(**signed_at(NOW_S - age_s)))[0] == status


def test_the_example_in_the_documentation_of_slack_is_valid():
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url="
        b"https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
        b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert flaw_of(SECRET, "1531420618", signature, body, NOW_S) is None
    assert flaw_of(SECRET, "1531420618", signature, body + b"x", NOW_S) is not None
    assert flaw_of(f"{SECRET}x", "1531420618", signature, body, NOW_S) is not None


@given(st.text(max_size=80), st.text(max_size=80))
def test_arbitrary_headers_are_refused_without_an_error(timestamp, signature):
    assert flaw_of(SECRET, timestamp, signature, b"{}", NOW_S) is not None


async def test_the_log_distinguishes_a_wrong_clock_from_a_wrong_secret(slack):
    with capture_logs() as logs:
        await slack.event(**signed_at(NOW_S - 4000))
        await slack.event(x_slack_signature="v0=" + "0" * 64)
    assert ["clock" in log["why"] for log in logs] == [True, False]
    assert "signing secret" in logs[1]["why"]


async def test_the_challenge_is_answered(slack, receiver):
    status, text = await slack.event({"type": "url_verification", "challenge": "3eZbrw1aB", "token": "t"})
    assert (status, json.loads(text)) == (200, {"challenge": "3eZbrw1aB"})
    assert receiver.bodies == []


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"event": %s}' % (b"[" * 800 + b"]" * 800), "application/json"),
        (b"payload=" + b"[" * 100_000, FORM),
        (b"payload=%7B%22a%22:" + b"[" * 800 + b"]" * 800 + b"%7D", FORM),
        (b"payload", FORM),
        (b"payload=%FF", FORM),
        (b"payload=[]", FORM),
        (b"\xff=1", FORM),
    ],
)
async def test_an_unreadable_body_is_refused(slack, receiver, raw, content_type):
    assert (await slack.send(raw, content_type))[0] == 400
    assert receiver.bodies == []


@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(str.encode),
        st.text('payload=&%7B{}"[]+;', max_size=60).map(str.encode),
    ),
    st.sampled_from(["application/json", FORM, "text/plain"]),
)
def test_every_body_is_an_object_or_refused(raw, content_type):
    with contextlib.suppress(Malformed):
        assert isinstance(body_of(raw, content_type), dict)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (
            {"payload": '{"type": "block_actions", "actions": [{"value": "a&b=c ü"}]}'},
            {"type": "block_actions", "actions": [{"value": "a&b=c ü"}]},
        ),
        ({"command": "/agent", "text": "", "user_id": "U1"}, {"command": "/agent", "text": "", "user_id": "U1"}),
    ],
    ids=["click", "command"],
)
async def test_clicks_and_commands_arrive_as_forms(slack, receiver, form, body):
    assert (await slack.send(urlencode(form).encode(), FORM))[0] == 200
    assert receiver.bodies == [body]


async def test_the_payload_of_a_reply_is_the_body_of_the_response(slack, receiver):
    receiver.reply = Reply(200, {"text": "so"})
    status, text = await slack.event()
    assert (status, json.loads(text)) == (200, {"text": "so"})


async def test_a_body_that_is_too_large_is_refused(slack, receiver):
    assert (await slack.send(b" " * (1024 * 1024 + 1)))[0] == 413
    assert receiver.bodies == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity", "x"])
async def test_a_body_with_a_content_encoding_is_refused_and_not_decompressed(slack, receiver, encoding):
    assert (await slack.send(gzip.compress(bytes(10_000_000), 9), content_encoding=encoding))[0] == 415
    assert receiver.bodies == []


@pytest.fixture
async def connect():
    """Open a connection to a port, and send some bytes."""
    writers: list[asyncio.StreamWriter] = []

    async def connect(port: int, sent: bytes = b"POST /slack/events HTTP/1.1\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        writer.write(sent)
        return reader, writer

    yield connect
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0)


@pytest.mark.parametrize("sent", [b"", HEAD])
async def test_a_connection_without_complete_headers_is_closed(serving, connect, sent):
    async with serving(headers_within_s=0.05) as port, asyncio.timeout(5):
        reader, _ = await connect(port, sent)
        assert await reader.read() == b""


async def test_of_too_many_connections_the_longest_waiting_one_is_closed(serving, connect, http):
    async with serving(most_connections=2) as port, asyncio.timeout(5):
        (first, _), (second, _) = await connect(port), await connect(port)
        assert (await Slack(http, port).event())[0] == 200
        assert await first.read() == b""
        assert not second.at_eof()
        await connect(port)
        assert await second.read() == b"", "the connection of the request is newer"


async def test_a_connection_with_a_request_in_progress_is_not_closed_for_a_new_one(serving, connect, http, receiver):
    receiver.may_end.clear()
    async with serving(most_connections=1) as port, asyncio.timeout(5):
        response = asyncio.create_task(Slack(http, port).event())
        await receiver.has_begun.wait()
        reader, _ = await connect(port)
        assert await reader.read() == b""
        receiver.may_end.set()
        assert (await response)[0] == 200


async def test_hundreds_of_half_open_connections_block_no_request(serving, connect, http):
    async with serving(most_connections=50) as port, asyncio.timeout(20):
        readers = [(await connect(port))[0] for _ in range(400)]
        assert (await Slack(http, port).event())[0] == 200
        assert sum(reader.at_eof() for reader in readers) >= 350


async def test_unfinished_bodies_block_no_request_and_log_no_traceback(serving, connect, caplog):
    body = HEAD + b"Content-Length: 1000\r\n\r\n{"
    async with serving(most_connections=20, answer_within_s=60.0) as port, asyncio.timeout(20):
        readers = [(await connect(port, body))[0] for _ in range(20)]
        for _ in range(5):
            async with aiohttp.ClientSession() as http:
                assert (await Slack(http, port).event())[0] == 200
            readers += [(await connect(port, body))[0] for _ in range(20)]
        assert [await reader.read() for reader in readers[:80]] == [b""] * 80
    assert not caplog.records, "the library's own log"


def levels(logs) -> list[tuple[str, str]]:
    return [(log["event"], log["log_level"]) for log in logs if log["event"] != "http.listening"]


async def test_an_unreadable_chunk_ends_its_request_at_once(serving, connect, caplog):
    with capture_logs() as logs:
        async with serving(answer_within_s=60.0) as port, asyncio.timeout(5):
            reader, writer = await connect(port, HEAD + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"2\r\n{}\r\nnothing\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
    assert levels(logs) == [("http.bad_request", "info")]
    assert not caplog.records, "the library's own log"


async def test_a_body_that_is_too_slow_is_one_line_in_the_log(serving, connect):
    with capture_logs() as logs:
        async with serving(answer_within_s=0.05) as port, asyncio.timeout(5):
            reader, _ = await connect(port, HEAD + b"Content-Length: 1000\r\n\r\n{")
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    assert levels(logs) == [("http.bad_request", "info")]


@pytest.mark.parametrize(
    ("raw", "headers", "logged"),
    [
        (b"{}", {"x_slack_signature": None}, ("http.refused", "info")),
        (b"{}", {"x_slack_signature": "garbage"}, ("http.refused", "info")),
        (b"{}", {"x_slack_signature": "v0=" + "0" * 64}, ("http.refused", "warning")),
        (b"{", {}, ("http.malformed", "info")),
    ],
)
async def test_only_the_effect_of_a_wrong_setting_is_a_warning(slack, raw, headers, logged):
    with capture_logs() as logs:
        await slack.send(raw, **headers)
    assert levels(logs) == [logged]


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 20_000,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 500 + b"\r\n",
        b"GET / HTTP/1.1\r\n\x00: a\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nnothing\r\n",
        HEAD + b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\nhalf",
    ],
)
async def test_bytes_that_are_not_http_are_one_line_in_the_log(serving, connect, caplog, sent):
    with capture_logs() as logs:
        async with serving() as port, asyncio.timeout(5):
            reader, writer = await connect(port, sent)
            response = await reader.readline()
            writer.transport.abort()  # an incomplete body is lost now
    assert response.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 100"))
    assert levels(logs) == [("http.bad_request", "info")]
    assert all(len(log["why"]) <= 100 for log in logs if log["event"] == "http.bad_request")
    assert not caplog.records, "the library's own log"


async def test_an_event_that_is_not_stored_is_requested_again(slack, receiver):
    receiver.reply = Reply(503)
    assert (await slack.event())[0] == 503


async def test_an_event_that_is_not_stored_in_time_is_requested_again_and_stored_anyway(slack, receiver):
    receiver.may_end.clear()
    assert (await slack.event())[0] == 503
    receiver.may_end.set()
    async with asyncio.timeout(5):
        await receiver.done.acquire()


async def test_an_event_that_gets_no_slot_in_time_is_requested_again(slack, receiver):
    receiver.may_end.clear()
    responses = await asyncio.gather(*(slack.event({**EVENT, "event_id": str(number)}) for number in range(4)))
    assert [status for status, _ in responses] == [503] * 4
    assert len(receiver.bodies) == 2
    waiting = asyncio.create_task(slack.event())
    receiver.may_end.set()
    assert (await waiting)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/slack/events", 405),
        ("PUT", "/slack/events", 405),
        ("POST", "/elsewhere", 404),
        ("GET", "/healthz", 200),
    ],
)
async def test_other_methods_and_paths_have_their_status_and_health_is_reported(slack, http, method, path, status):
    async with http.request(method, slack.url + path) as response:
        assert response.status == status
        assert status != 200 or await response.text() == "ok\n"


@pytest.mark.parametrize("is_port_in_use", [True, False])
async def test_an_unusable_address_is_named(receiver, is_port_in_use):
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        host, port = used.getsockname() if is_port_in_use else ("203.0.113.1", 3000)
        reason = f"127.0.0.1 port {port}: another program uses it" if is_port_in_use else "Check the address"
        with pytest.raises(ConnectionRefused, match=reason):
            async with HttpServer(HttpTransport(SECRET, host, port), receiver.receive, asyncio.Semaphore(1)):
                pass


async def test_closing_cancels_the_requests_in_progress(http, serving, receiver):
    receiver.may_end.clear()
    before = asyncio.all_tasks()
    async with serving(answer_within_s=0.05) as port:
        assert (await Slack(http, port).event())[0] == 503
        ours = {task for task in asyncio.all_tasks() - before if "receive" in repr(task)}
        assert ours
    assert all(task.done() for task in ours)
