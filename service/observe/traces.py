"""Traces for OpenTelemetry: one per run, with a span for each model call and each tool call.

The id of a trace is the id of its run, so that a run which several processes work on has one trace. The admission of a
message is a trace of its own, with ids derived from the message's; the run that reads the message links to it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from orchestrator_interactive.kernel.contracts import events
from service.observe import genai

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from opentelemetry.trace import Span

    from connector.observer import RunReport
    from orchestrator_interactive.loop.outcome import UsageTotals

_NAME = "amplifier-slack"
# Time for the last spans at shutdown. The thread that sends them does not keep the process alive.
_FLUSH_WITHIN_S = 0.4
_RUN = "amplifier_slack.run.id"
_OUTCOME = "amplifier_slack.run.outcome"
_MESSAGE = "amplifier_slack.message.id"

_next_ids: ContextVar[tuple[int, int | None] | None] = ContextVar("next_ids", default=None)


class Traces:
    """Creates spans, and exports them in the background as the OTEL_* environment variables say.

    Args:
        with_content: whether spans have texts, arguments and results.
        hide: removes secrets from them.
    """

    def __init__(self, *, with_content: bool, hide: Callable[[str], str] = str) -> None:
        self.with_content = with_content
        self.hide = hide
        name = os.environ.get("OTEL_SERVICE_NAME", _NAME)
        resource = Resource.create({"service.name": name, "service.version": version("amplifier-slack")})
        self._provider = TracerProvider(resource=resource, id_generator=_Ids(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(_NAME, schema_url=genai.SCHEMA_URL)

    async def aclose(self) -> None:
        """Export the last spans, for at most `_FLUSH_WITHIN_S`."""
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(is_done.set)

        threading.Thread(target=shut_down, daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_WITHIN_S):
                await is_done.wait()

    @contextmanager
    def run(
        self, run_id: str, conversation_id: str, instance: str, message_id: str, report: RunReport
    ) -> Iterator[None]:
        """Surround a run; its span is the parent of the spans that `spans_of_run` creates in this context."""
        with _ids(int(run_id, 16), None):
            span = self._tracer.start_span(
                f"{genai.INVOKE_AGENT} {instance}",
                Context(),
                attributes={
                    genai.OPERATION: genai.INVOKE_AGENT,
                    genai.AGENT: instance,
                    genai.CONVERSATION: conversation_id,
                    _RUN: run_id,
                },
            )
        span.add_link(_admission_of(message_id))
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            finally:
                span.set_attribute(_OUTCOME, report.outcome)
                if report.outcome == "error":
                    span.set_status(Status(StatusCode.ERROR))

    def admitted(self, conversation_id: str, message_id: str) -> None:
        """Record the admission of a message."""
        admission = _admission_of(message_id)
        with _ids(admission.trace_id, admission.span_id):
            attributes = {genai.CONVERSATION: conversation_id, _MESSAGE: message_id}
            self._tracer.start_span("admit message", Context(), SpanKind.CONSUMER, attributes).end()

    def spans_of_run(self) -> RunSpans:
        """Return the spans of the run in whose context the caller is."""
        return RunSpans(self, self._tracer, trace.get_current_span())


class RunSpans:
    """The spans of the calls in one run."""

    def __init__(self, traces: Traces, tracer: trace.Tracer, root: Span) -> None:
        self._traces = traces
        self._tracer = tracer
        self._root = root
        self._chat: Span | None = None
        self._tools: dict[str, Span] = {}
        # The request of the next model call.
        self._input: str | None = None

    def on_progress(self, event: str, data: Mapping[str, Any]) -> None:
        match event:
            case "thinking":
                self._end_chat()
                self._chat = self._start(genai.CHAT, SpanKind.CLIENT)
            case "tool:start":
                name, call_id = data["tool"], data["id"]
                span = self._tools[call_id] = self._start(f"{genai.EXECUTE_TOOL} {name}")
                span.set_attributes({genai.TOOL: name, genai.TOOL_CALL: call_id, genai.TOOL_TYPE: "function"})
                self._add(span, genai.TOOL_ARGUMENTS, lambda: genai.as_json(data.get("args")))
            case "tool:end" if (ended := self._tools.pop(data["id"], None)) is not None:
                _end(ended, None if data.get("success", True) else "tool_error")
            case "injection:applied":
                for message_id in data.get("ids", ()):
                    self._root.add_event("message read", {_MESSAGE: message_id})
                    self._root.add_link(_admission_of(message_id))

    def on_event(self, event: str, data: Mapping[str, Any]) -> None:
        """Record a hook event: the failure of a model call, or the content of a request or a result."""
        match event:
            case events.PROVIDER_ERROR:
                self._end_chat((data.get("error") or {}).get("type", "error"), str(data.get("provider", "")))
            case events.PROVIDER_REQUEST if self._chat is not None:
                self._add(self._chat, genai.INPUT_MESSAGES, lambda: genai.messages(data.get("messages") or ()))
            case events.TOOL_POST | events.TOOL_ERROR if span := self._tools.get(str(data.get("tool_call_id"))):
                result = data.get("tool_result")
                self._add(span, genai.TOOL_RESULT, lambda: str(getattr(result, "output", None) or data.get("error")))

    def answered(self, model: str, usage: UsageTotals, data: Mapping[str, Any]) -> None:
        """Complete the span of the model call with its answer."""
        if (span := self._chat) is None:
            return
        response, provider = data.get("response"), str(data.get("provider", ""))
        span.update_name(f"{genai.CHAT} {model}")
        self._root.set_attributes({genai.PROVIDER: provider, genai.REQUEST_MODEL: model})
        span.set_attributes(
            {
                genai.PROVIDER: provider,
                genai.REQUEST_MODEL: model,
                genai.RESPONSE_MODEL: model,
                genai.INPUT_TOKENS: usage.input_tokens,
                genai.OUTPUT_TOKENS: usage.output_tokens,
                genai.CACHE_READ_TOKENS: usage.cache_read_tokens,
                genai.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
            }
        )
        if reason := getattr(response, "finish_reason", None):
            span.set_attribute(genai.FINISH_REASONS, [str(reason)])
        blocks = [block.model_dump() for block in getattr(response, "content", ())] if self._traces.with_content else []
        self._add(span, genai.OUTPUT_MESSAGES, lambda: genai.messages([{"role": "assistant", "content": blocks}]))
        self._end_chat()

    def end(self) -> None:
        """End the spans of calls that the end of the run has cancelled."""
        self._end_chat("cancelled")
        for span in self._tools.values():
            _end(span, "cancelled")
        self._tools.clear()

    def _start(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> Span:
        span = self._tracer.start_span(name, trace.set_span_in_context(self._root), kind)
        span.set_attribute(genai.OPERATION, name.partition(" ")[0])
        return span

    def _end_chat(self, error: str | None = None, provider: str = "") -> None:
        span, self._chat = self._chat, None
        if span is not None:
            if provider:
                span.set_attribute(genai.PROVIDER, provider)
            _end(span, error)

    def _add(self, span: Span, name: str, content: Callable[[], str]) -> None:
        """Add content, if it is to be traced, without secrets."""
        if self._traces.with_content:
            span.set_attribute(name, self._traces.hide(content()))


class _Ids(RandomIdGenerator):
    """Random ids, unless `_ids` sets those of the next span."""

    def generate_trace_id(self) -> int:
        chosen = _next_ids.get()
        return super().generate_trace_id() if chosen is None else chosen[0]

    def generate_span_id(self) -> int:
        chosen = _next_ids.get()
        return super().generate_span_id() if chosen is None or chosen[1] is None else chosen[1]


@contextmanager
def _ids(trace_id: int, span_id: int | None) -> Iterator[None]:
    token = _next_ids.set((trace_id, span_id))
    try:
        yield
    finally:
        _next_ids.reset(token)


def _admission_of(message_id: str) -> SpanContext:
    """Return the span of a message's admission, which another process may have recorded."""
    digest = sha256(message_id.encode()).digest()
    ids = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
    return SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _end(span: Span, error: str | None) -> None:
    if error is not None:
        span.set_attribute(genai.ERROR_TYPE, error)
        span.set_status(Status(StatusCode.ERROR))
    span.end()
