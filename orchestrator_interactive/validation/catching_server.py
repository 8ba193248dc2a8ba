"""Mock server of a model's service: records requests and answers, refuses or delays them.

It knows Anthropic's Messages API and OpenAI's Chat Completions API, which most providers use. `service_answers` has the
bodies of its responses, plain and streamed: a text and a tool call, from Anthropic also signed thinking.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Literal, Self

# In the answer of Anthropic's API.
ANSWER_SIGNATURE = "YW5zd2VyU2lnbmF0dXJl"
_APIS = {"/models": "models", "/messages": "messages", "/chat/completions": "completions"}
_POLL_INTERVAL_S = 0.02  # at which the server checks for its shutdown


@dataclass(frozen=True, slots=True)
class Caught:
    """One request and the body of its answer; `None` if it was refused."""

    body: bytes
    answer: bytes | None


class CatchingServer:
    """HTTP server on a free local port, in a thread: a provider may block the event loop during a call."""

    def __init__(self) -> None:
        self.caught: list[Caught] = []
        self._mode: Literal["answer", "refuse", "delay"] = "answer"
        self._arrived = threading.Event()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_INTERVAL_S,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def set_mode(self, mode: Literal["answer", "refuse", "delay"]) -> None:
        """Set how to handle the next requests: answer those of a known format, refuse, or delay."""
        self._mode = mode
        self._arrived.clear()
        if mode == "delay":
            self._released.clear()
        else:
            self._released.set()

    async def wait_for_request(self, within_s: float) -> bool:
        """Wait for a request since the latest `set_mode`; return False after `within_s` seconds."""
        return await asyncio.to_thread(self._arrived.wait, within_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.set_mode("refuse")
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the request
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = _body(self)
                content_type, answer = service_answer(self.path, body) if server._mode == "answer" else ("", None)
                server.caught.append(Caught(body, answer))
                server._arrived.set()
                if server._mode == "delay":
                    server._released.wait()
                # A bad request, which clients do not retry.
                self.send_response(400 if answer is None else 200)
                shown = _file("refusal.json") if answer is None else answer
                self.send_header("Content-Type", content_type or "application/json")
                self.send_header("Content-Length", str(len(shown)))
                self.end_headers()
                self.wfile.write(shown)

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names are the base class's

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def service_answer(path: str, body: bytes) -> tuple[str, bytes | None]:
    """Return content type and body of the answer to a request; no body for an unknown API."""
    path = path.partition("?")[0].rstrip("/")
    name = next((name for end, name in _APIS.items() if path.endswith(end)), None)
    try:
        streams = bool(json.loads(body).get("stream"))
    except (ValueError, AttributeError):
        streams = False
    if name is None:
        return "", None
    return ("text/event-stream", _file(f"{name}.sse")) if streams else ("application/json", _file(f"{name}.json"))


def _file(name: str) -> bytes:
    return files(__package__).joinpath("service_answers", name).read_bytes()


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in request.headers.get("Transfer-Encoding", "").lower():
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    chunks = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(chunks)
