"""Mock server of a model's service: records requests and answers, refuses or delays them."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal, Self

from orchestrator_interactive.validation.provider.service_answers import ServiceAnswer, service_answer

if TYPE_CHECKING:
    from types import TracebackType

# A bad request, which clients do not retry. The body combines the formats of several services.
_REFUSED = 400
_REFUSAL = {
    "type": "error",
    "error": {"type": "invalid_request_error", "code": "invalid_request", "message": "This is only a validation."},
}

# Interval at which the server checks for its shutdown.
_POLL_INTERVAL_S = 0.02

Mode = Literal["answers", "refuses", "waits"]


@dataclass(frozen=True, slots=True)
class Caught:
    """One request and its answer; `None` if it was refused."""

    body: bytes
    answer: ServiceAnswer | None


class CatchingServer:
    """HTTP server on a free local port, in a thread: a provider may block the event loop during a call."""

    def __init__(self) -> None:
        self._mode: Mode = "answers"
        self._caught: list[Caught] = []
        self._arrived = threading.Event()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_INTERVAL_S,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def caught(self) -> tuple[Caught, ...]:
        """Requests so far, in order."""
        return tuple(self._caught)

    def set_mode(self, mode: Mode) -> None:
        """Set how to handle the next requests: answer those of a known format, refuse, or delay."""
        self._mode = mode
        self._arrived.clear()
        if mode == "waits":
            self._released.clear()
        else:
            self._released.set()

    async def wait_for_request(self, within_s: float) -> bool:
        """Wait for a request since the latest `set_mode`; return False after `within_s` seconds."""
        return await asyncio.to_thread(self._arrived.wait, within_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.set_mode("refuses")
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, path: str, body: bytes) -> ServiceAnswer | None:
        answer = service_answer(path, body) if self._mode == "answers" else None
        self._caught.append(Caught(body, answer))
        self._arrived.set()
        if self._mode == "waits":
            self._released.wait()
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer_to = self._answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                answer = answer_to(self.path, _body(self))
                refusal = ServiceAnswer("application/json", json.dumps(_REFUSAL).encode())
                self.send_response(200 if answer else _REFUSED)
                self.send_header("Content-Type", (answer or refusal).content_type)
                self.send_header("Content-Length", str(len((answer or refusal).body)))
                self.end_headers()
                self.wfile.write((answer or refusal).body)

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names are the base class's

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if "chunked" in request.headers.get("Transfer-Encoding", "").lower():
        return b"".join(_chunks(request))
    return request.rfile.read(int(request.headers.get("Content-Length") or 0))


def _chunks(request: BaseHTTPRequestHandler) -> list[bytes]:
    chunks = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return chunks
