"""Scenarios for providers: calls against a mock server of a model's service, which answers, refuses or delays them.

The server knows Anthropic's Messages API and OpenAI's Chat Completions API, which most providers use. `service_answers`
has the bodies of its responses, plain and streamed: a text and a tool call, from Anthropic also signed thinking.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, Self

from orchestrator_interactive.kernel.contracts.conversion import foreign, is_foreign, to_local, to_local_error
from orchestrator_interactive.kernel.contracts.errors import LLMError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    ToolSpec,
)
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.validation.runner import (
    CallResult,
    NotCheckedError,
    ToleratedError,
    called,
    cancel_in_time,
    kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator_interactive.validation.runner import Sandboxes, Validator, Verdict

# The answers of both APIs have this text and this call, that of Anthropic's API also the signature.
ANSWER_TEXT = "Apples and pears."
ANSWER_CALL = ToolCall(id="toolu_answer19", name="read_file", arguments={"path": "2.txt"})
ANSWER_SIGNATURE = "YW5zd2VyU2lnbmF0dXJl"
_APIS = {"/models": "models", "/messages": "messages", "/chat/completions": "completions"}
_POLL_INTERVAL_S = 0.02  # at which the server checks for its shutdown

SIGNATURE = "c2lnbmF0dXJlT2ZUaGVUaGlua2luZw"
CALLS = ("toolu_first17", "toolu_second18")
RESULTS = ("The first file holds apples.", "The second file holds pears.")
PROMPTS = ("What do both files hold?", "And what grows on trees?")
SYSTEM = "You count fruit."
DESCRIPTION = "Read a file about fruit."
# Texts that the body of a provider's request must contain, by description.
_SENT = {
    "the text of the user": PROMPTS,
    "the system message": (SYSTEM,),
    "the text of a tool's result": RESULTS,
    "the description of a tool": (DESCRIPTION,),
    "the signature of the thinking block": (SIGNATURE,),
}
_PARSED_CALLS = (
    ToolCall(id="call_1", name="read_file", arguments={"path": "a.txt", "lines": [1, 2]}),
    ToolCall(id="call_2", name="list_files", arguments={}),
)
_SET_ADDRESS = "Let the option `base_url` set its service's address, and give with --config what else it needs."


async def check_provider(validator: Validator, sandboxes: Sandboxes, server: CatchingServer) -> None:
    """Call each provider of the module against the mock server, then check the rules."""
    async with sandboxes.open() as sandbox:
        for mounted in sandbox.all("provider"):
            trials = ProviderTrials(mounted.instance)
            await trials.run(validator, server)
            for rule in (
                *(trials.identifies_itself, trials.reports_limits, trials.lists_its_models, trials.parses_calls),
                *(trials.answers, trials.reports_usage, trials.keeps_thinking, trials.leaves_the_request),
                *(trials.sends_the_conversation, trials.raises_llm_errors, trials.honours_cancellation),
            ):
                validator.check(rule.__name__, rule())


@dataclass(slots=True)
class ProviderTrials:
    """The calls of a provider. Each public method except `run` is a rule by its key, and yields its verdicts.

    Args:
        models: outcome of `list_models`.
        asked: outcome of a call of `complete`.
        refused: outcome of a call that the service refused.
        cancelled: outcome of a call that was cancelled while the service delayed it; `None` if no request arrived.
        knows_models: whether the mock server knew all requests of `list_models`.
        caught: requests of `complete` at the mock server; empty if the provider calls no service.
        changed: fields of the request that `complete` changed.
    """

    provider: Any
    models: CallResult = field(default_factory=CallResult)
    asked: CallResult = field(default_factory=CallResult)
    refused: CallResult = field(default_factory=CallResult)
    cancelled: CallResult | None = None
    knows_models: bool = True
    caught: tuple[Caught, ...] = ()
    changed: tuple[str, ...] = ()

    async def run(self, validator: Validator, server: CatchingServer) -> None:
        server.set_mode("answer")
        start = len(server.caught)
        self.models = await validator.perform("list_models()", called(self.provider.list_models))
        self.knows_models = all(each.answer for each in server.caught[start:])
        request = self._native(_conversation())
        before, start = request.model_dump(), len(server.caught)
        self.asked = await validator.perform("complete()", called(partial(self.provider.complete, request)))
        after, self.caught = request.model_dump(), tuple(server.caught[start:])
        self.changed = tuple(name for name, value in before.items() if after.get(name) != value)
        if self.caught:
            server.set_mode("refuse")
            self.refused = await validator.perform("complete(), refused by the service", self._complete())
            server.set_mode("delay")
            ended = await validator.perform("complete(), cancelled", self._cancel(validator, server))
            self.cancelled = ended.value if not ended.problem else ended
            server.set_mode("refuse")

    async def _complete(self) -> Any:
        return await called(partial(self.provider.complete, self._native(_conversation())))

    async def _cancel(self, validator: Validator, server: CatchingServer) -> CallResult | None:
        """Cancel a call of `complete` when its request has arrived; return how it ended, `None` if none arrived."""
        task = asyncio.create_task(validator.caught(self._complete()))
        arrived = await server.wait_for_request(validator.limit_s / 2)
        if not await cancel_in_time(task):
            return CallResult(hung=True, problem="continues after its cancellation") if arrived else None
        return await validator.ending(task) if arrived else None

    def _native(self, value: Any) -> Any:
        """Convert our value to the types that the provider uses."""
        try:
            return foreign(value) if is_foreign(self.provider.get_info()) else value
        except Exception:  # noqa: BLE001 - third-party code: a rule reports it
            return value

    def identifies_itself(self) -> Iterator[Verdict]:
        info = to_local(self.provider.get_info())
        if not isinstance(info, ProviderInfo):
            yield f"It returns {kind(info)}, not a ProviderInfo."
            return
        yield from (f"Its {name} is blank." for name in ("id", "display_name") if not getattr(info, name).strip())

    def reports_limits(self) -> Iterator[Verdict]:
        defaults = getattr(self.provider.get_info(), "defaults", None) or {}
        for name in ("context_window", "max_output_tokens"):
            if not isinstance(defaults.get(name), int) or defaults[name] <= 0:
                yield f"Its defaults have no number of tokens for '{name}'."

    def lists_its_models(self) -> Iterator[Verdict]:
        models = self.models
        if models.problem and not models.cancelled:
            yield ToleratedError(f"It {models.problem}.") if self.knows_models else _unknown_service()
        elif models.cancelled:
            yield f"It {models.problem}."
        elif not isinstance(models.value, list):
            yield f"It returns {kind(models.value)}."
        elif wrong := [model for model in models.value if not isinstance(to_local(model), ModelInfo)]:
            yield f"There is {kind(wrong[0])} in the list."

    def parses_calls(self) -> Iterator[Verdict]:
        for count in range(len(_PARSED_CALLS) + 1):
            calls = _PARSED_CALLS[:count]
            blocks = [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
            content = [TextBlock(text="Let me see."), *blocks]
            response = self._native(ChatResponse(content=content, tool_calls=list(calls) or None))
            before = response.model_dump()
            got = self.provider.parse_tool_calls(response)
            found = f"Of a response with {count} calls it makes"
            if not isinstance(got, list):
                yield f"{found} {kind(got)}, not a list."
                continue
            if (parsed := _plain(got)) != [call.model_dump() for call in calls]:
                yield f"{found} {parsed}."
            if response.model_dump() != before:
                yield "The response is changed afterwards."

    def answers(self) -> Iterator[Verdict]:
        answer = self._answer()
        if not isinstance(answer, ChatResponse):
            yield f"It returns {kind(answer)}."
        elif not answer.content:
            yield "Its content is empty."
        elif any(caught.answer and ANSWER_TEXT.encode() in caught.answer for caught in self.caught):
            text = "".join(block.text for block in answer.content if isinstance(block, TextBlock))
            if ANSWER_TEXT not in text:
                yield f"The text of the service's answer, '{ANSWER_TEXT}', is not in the response."
            calls = _plain(self.provider.parse_tool_calls(self.asked.value))
            if calls != [ANSWER_CALL.model_dump()]:
                yield f"Of the call in the service's answer, {ANSWER_CALL.model_dump()}, it makes {calls}."

    def reports_usage(self) -> Iterator[Verdict]:
        usage = getattr(self._answer(), "usage", None)
        if usage is None:
            yield "The response has no usage."
            return
        counts = {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")}
        total = usage.input_tokens + usage.output_tokens
        if min(counts.values()) < 0:
            yield f"A number of tokens is negative: {counts}."
        elif usage.total_tokens != total:
            yield f"total_tokens is {usage.total_tokens}; input and output are {total}."

    def keeps_thinking(self) -> Iterator[Verdict]:
        answer = self._answer()
        if not any(caught.answer and ANSWER_SIGNATURE.encode() in caught.answer for caught in self.caught):
            yield NotCheckedError("Its service has not answered with thinking that is signed.", "None is needed.")
        elif not any(getattr(block, "signature", None) == ANSWER_SIGNATURE for block in answer.content):
            yield "The signature of the thinking in the service's answer is not in the response."

    def leaves_the_request(self) -> Iterator[Verdict]:
        yield from (f"After the call its '{name}' is changed." for name in self.changed)

    def sends_the_conversation(self) -> Iterator[Verdict]:
        self._require_a_request()
        # The largest is the model call; others may fetch a token or count tokens.
        largest = max(self.caught, key=lambda caught: len(caught.body))
        sent = largest.body.decode(errors="replace")
        for call in CALLS:
            if sent.count(call) < 2:
                yield f"The id {call} is not both at its call and at its result."
        for what, texts in _SENT.items():
            if texts == (SIGNATURE,) and _has_no_signatures(largest.path):
                continue
            if not all(text in sent for text in texts):
                yield f"In the request's body {what} is missing."

    def raises_llm_errors(self) -> Iterator[Verdict]:
        self._require_a_request()
        refused = self.refused
        if not (isinstance(refused.error, Exception) and isinstance(to_local_error(refused.error), LLMError)):
            yield f"After HTTP status 400 it {refused.problem or 'returns an answer'}."

    def honours_cancellation(self) -> Iterator[Verdict]:
        self._require_a_request()
        ended = self.cancelled
        if ended is None:
            reason = "A second request has not reached its service."
            yield NotCheckedError(reason, "Let every complete() ask the service.")
        elif ended.hung:
            yield "It continues after its cancellation."
        elif not ended.cancelled:
            how = f"{ended.problem} instead of" if ended.problem else "returns an answer instead of raising"
            yield f"Cancelled, it {how} CancelledError."

    def _answer(self) -> Any:
        """Return the result of `complete`, in our types.

        Raises:
            NotCheckedError: the call failed for lack of its service.
        """
        asked = self.asked
        if not asked.problem:
            return to_local(asked.value)
        if self.caught and self.caught[-1].answer is None:
            raise _unknown_service()
        error = to_local_error(asked.error) if isinstance(asked.error, Exception) else asked.error
        if asked.hung or asked.cancelled:
            raise NotCheckedError(f"It {asked.problem}.", _SET_ADDRESS if asked.hung else "Find what cancels it.")
        if not self.caught and isinstance(error, LLMError | OSError):
            reason = f"It {asked.problem}, and has called nothing at the option `base_url`."
            raise NotCheckedError(reason, _SET_ADDRESS)
        raise error or TypeError

    def _require_a_request(self) -> None:
        if not self.caught and not self.asked.problem:
            raise NotCheckedError("It answers without asking a service over HTTP.", "None is needed.")
        if not self.caught:
            raise NotCheckedError("No request has arrived at the option `base_url`.", _SET_ADDRESS)


def _plain(calls: Iterable[Any]) -> list[dict[str, Any]]:
    return [{name: getattr(call, name, None) for name in ("id", "name", "arguments")} for call in calls]


def _unknown_service() -> NotCheckedError:
    reason = "It calls a service whose response format the mock server does not know."
    return NotCheckedError(reason, "Test it against recorded responses of the service.")


def _conversation() -> ChatRequest:
    """Return a request with signed thinking, two parallel calls, and their results."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    blocks = [
        ThinkingBlock(thinking="Two files, two calls.", signature=SIGNATURE),
        RedactedThinkingBlock(data="cmVkYWN0ZWRUaGlua2luZw"),
        TextBlock(text="I read them."),
        *(ToolCallBlock(id=call, name="read_file", input={"path": f"{n}.txt"}) for n, call in enumerate(CALLS)),
    ]
    messages = [
        Message(role="system", content=SYSTEM),
        Message(role="user", content=PROMPTS[0]),
        Message(role="assistant", content=blocks),
        *(Message(role="tool", tool_call_id=call, content=said) for call, said in zip(CALLS, RESULTS, strict=True)),
        Message(role="user", content=PROMPTS[1]),
    ]
    tool = ToolSpec(name="read_file", description=DESCRIPTION, parameters=schema)
    return ChatRequest(messages=messages, tools=[tool], max_output_tokens=1000)


@dataclass(frozen=True, slots=True)
class Caught:
    """One request and the body of its answer; `None` if it was refused."""

    body: bytes
    answer: bytes | None
    path: str = ""


class CatchingServer:
    """HTTP server on a free local port, in a thread: a provider may block the event loop during a call."""

    def __init__(self) -> None:
        self.caught: list[Caught] = []
        self._mode: Literal["answer", "refuse", "delay"] = "answer"
        self._arrived = threading.Event()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
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
                server.caught.append(Caught(body, answer, self.path))
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


def _has_no_signatures(path: str) -> bool:
    """Return whether this is the Chat Completions API, whose thinking has no signature."""
    return path.partition("?")[0].rstrip("/").endswith("/chat/completions")


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
