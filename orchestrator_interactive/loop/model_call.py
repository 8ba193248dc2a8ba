"""One model call: the request, its hooks, the streamed answer, and the recovery from a failed or cancelled one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import (
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    LLMTimeoutError,
    ProviderUnavailableError,
    RateLimitError,
)
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, ResponseStream, ToolCall
from orchestrator_interactive.kernel.contracts.tool_calls import calls_of
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, convert_exits, error_text
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.kernel.interop import ForeignProvider, to_local_provider
from orchestrator_interactive.kernel.timeout import with_timeout
from orchestrator_interactive.loop.outcome import Copies, usage_totals, with_usage
from orchestrator_interactive.loop.run import RunStopped, RunSuspended, changed, injected_row, lasting_rows
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.transcript.answer_parts import mark_partial
from orchestrator_interactive.transcript.framing import without_frames
from orchestrator_interactive.transcript.rows import assistant_row, estimate, marked
from orchestrator_interactive.transcript.transcript import RequestBuilder, Transcript, unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock, Usage
    from orchestrator_interactive.kernel.contracts.models import ContextInjection, HookResult
    from orchestrator_interactive.kernel.contracts.protocols import Provider
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.tool_calls import ToolExecutor

    Row = dict[str, Any]

log = structlog.get_logger(__name__)

PROVIDER_FALLBACK = "provider:fallback"

# Finish reason of an answer that an urgent message interrupted.
INTERRUPTED = "interrupted"
# Reading may include a summary by the model.
_MAX_READ_S = 3600.0
_MAX_BACKOFF_S = 30.0
# If `Retry-After` is longer, fall back to another provider: a run that shows nothing for minutes looks dead.
_MAX_WAIT_S = 60.0
# Factor for the token budget after a request that was too long: estimates are off by tens of percent.
_SHRINK_TO = 0.85
_MAX_SHRINKS = 3
# Errors without fallback: another provider would, or should, refuse the request too. A limit of tokens per minute is
# one of an account, and only a request that exceeds it alone counts as too long.
_FINAL = (ContentFilterError, InvalidRequestError, ContextLengthError)
_RATE_LIMITED = 429
# Text that people may see while it is written: most texts before a tool call are shorter.
_SENTENCE_CHARS, _SHOWN_CHARS = 80, 200
_BETWEEN_REPORTS_S = 0.25
# Finish reasons of refused answers.
REFUSED = ("refusal", "content_filter")


@dataclass(frozen=True, slots=True)
class Model:
    """A provider with its request builder and timeout.

    `stall_timeout_s` is the longest time without data, in seconds; `None` for a provider that does not stream. `model`
    is the provider's default model, if it names one.
    """

    name: str
    provider: Provider
    model: str | None
    requests: RequestBuilder
    stall_timeout_s: float | None


class ModelCaller:
    """Makes the model calls of one run. The end of the run and an urgent message cancel a call in flight."""

    def __init__(self, run: Run, providers: Mapping[str, Provider], calls: ToolExecutor) -> None:
        self._run = run
        self._providers = providers
        self._calls = calls
        self._retry_policy = RetryPolicy(run, providers)
        self._model: Model | None = None
        self._call: _StreamingCall | None = None
        # The usage of the last call, also of one that failed.
        self._spent: Usage | None = None
        self._read: list[ContextInjection] = []  # the ephemeral injections of the last answered request

    def cancel(self) -> None:
        """Cancel the call in flight, because the run ends."""
        if self._call is not None:
            self._call.task.cancel()

    def interrupt(self) -> None:
        """Cancel the call in flight, because an urgent message is pending; the answer so far is kept."""
        if self._call is not None and not self._call.task.is_over:
            self._call.was_interrupted = True
            self._call.task.cancel()

    async def ask(self, *, tools_allowed: bool) -> tuple[ChatResponse, Sequence[ToolCall]] | None:
        """Call the model with the current conversation; return its answer and the tool calls in it.

        Returns None if the call is to be repeated. An urgent message interrupts the answer; its finish reason is then
        `INTERRUPTED`. A request that a content filter rejected has a refused answer without content.

        Raises:
            RunStopped: the call was cancelled; its partial answer is in the context already.
            RunSuspended: the call was abandoned.
            RunDenied: a hook denied the request or the answer.
            LLMError: the provider failed or stalled, and neither retries nor fallback helped.
        """
        policy = self._retry_policy
        while (model := self._model) is None or model.name != policy.provider:
            try:
                with convert_exits():
                    self._model = self._new_model(policy.provider)
            except Exception as e:  # noqa: BLE001 - a provider's border; another one may work
                await self._fail(policy.provider, e, ())
        try:
            answer = await self._answer(model, tools_allowed=tools_allowed)
        except ContentFilterError as e:
            self._run.ephemeral.clear()  # the filter may have rejected them
            why = self._run.without_secrets(str(e))
            answer = ChatResponse(content=[], finish_reason="refusal", usage=self._spent, metadata={"refusal": why})
        if answer is None:
            return None
        if not tools_allowed or answer.finish_reason in REFUSED:
            return answer, ()
        try:
            return answer, _calls_in(answer, model.provider)
        except Exception as e:  # noqa: BLE001 - a provider's border
            error = LLMError(f"The tool calls of the answer cannot be parsed: {error_text(e)}", provider=model.name)
            error.__cause__ = e
            self._run.ephemeral[:0] = self._read
            await self._fail(model.name, error, ())
            return None

    async def _answer(self, model: Model, *, tools_allowed: bool) -> ChatResponse | None:
        run = self._run
        rows, request = await self._request(model, tools_allowed=tools_allowed)
        pending = len(run.ephemeral)  # they stay in the list until a provider has read them
        run.check_end()
        if run.inbox.pending and run.inbox.has_urgent:  # it arrived during hooks or compaction
            return None
        early = partial(self._calls.begin_early, is_used=model.requests.is_used, seen=set()) if tools_allowed else None
        written = None if run.on_progress is None else WrittenText(run)
        stream = ResponseStream(early, None if written is None else written.add)
        call = self._call = _StreamingCall(run, model, request, stream)
        try:
            await call.task.wait()
        finally:
            self._call = None
            run.deadlines.clear(call)
            stream.close()  # ignore what the provider still sends
            if written is not None:
                await written.end()
        returned: object = call.task.value if call.task.is_finished else None
        answer = returned if isinstance(returned, ChatResponse) else None
        usage = answer.usage if answer else stream.usage
        self._spent = usage
        if usage is not None:
            run.usage = run.usage.plus(usage_totals(usage))
        if answer is not None or run.is_ending:
            self._read, run.ephemeral[:pending] = run.ephemeral[:pending], ()
        if run.is_suspended:
            raise RunSuspended
        if run.is_stopped:
            await self._keep(stream.valid_blocks(answer.content if answer else None), usage)
        if answer is None:
            if not call.was_interrupted:
                await self._fail(model.name, call.error, rows, stream)
                return None
            # Tool calls that began early continue.
            answer = _answered_so_far(stream.valid_blocks(calls=self._calls.early), usage)
        self._retry_policy.failures = self._retry_policy.shrinks = 0
        if not run.hooks.listens(events.PROVIDER_RESPONSE):
            return answer
        return await self._checked(model, answer, stream)

    async def _checked(self, model: Model, answer: ChatResponse, stream: ResponseStream) -> ChatResponse:
        payload = {"provider": model.name, "response": answer, "usage": answer.usage}
        try:
            hook_result = await self._run.consult(events.PROVIDER_RESPONSE, payload)
        except RunStopped as e:
            if e.hook_result is None:  # a hook had not finished, and might have denied the answer
                raise
            await self._keep(stream.valid_blocks(changed(e.hook_result, "response", answer).content), answer.usage)
        return changed(hook_result, "response", answer)

    @property
    def model(self) -> Model:
        """The model that was asked last."""
        if self._model is None:
            raise RuntimeError("No model has been asked yet.")
        return self._model

    def _new_model(self, name: str) -> Model:
        provider, state = to_local_provider(self._providers[name]), self._run.session_state
        stall_timeout_s = None if isinstance(provider, ForeignProvider) else self._run.options.stall_timeout_s
        if state.transcript is None:
            state.transcript = Transcript()
        requests = RequestBuilder(provider, self._run.tools, state.transcript)
        model = (provider.get_info().defaults or {}).get("model")
        return Model(name, provider, model, requests, stall_timeout_s)

    async def _fail(
        self, provider: str, error: Exception, rows: Sequence[Row], stream: ResponseStream | None = None
    ) -> None:
        """Prepare the next call after a failed one, or raise the error. `stream` is the answer so far, if it failed."""
        await self._calls.drop_early()
        description = {"type": type(error).__name__, "msg": error_text(error)}
        failed: dict[str, Any] = {"provider": provider, "error": description, "usage": None, "has_begun": False}
        if stream is not None:
            failed |= {"usage": stream.usage, "has_begun": stream.pieces > 0}
        if isinstance(error, LLMError):
            failed |= {name: getattr(error, name) for name in ("retryable", "status_code", "retry_after")}
        await self._run.announce(events.PROVIDER_ERROR, failed)
        await self._retry_policy.recover(error, rows)

    async def _keep(self, kept: list[ContentBlock], usage: Usage | None) -> NoReturn:
        if kept:
            await self._run.commit(mark_partial(with_usage(assistant_row(kept), usage), "stopped"))
        raise RunStopped

    async def _request(self, model: Model, *, tools_allowed: bool) -> tuple[Sequence[Row], ChatRequest]:
        run, state = self._run, self._run.session_state
        rows = await self._rows(model)
        pending = len(run.ephemeral)
        hook_result = CONTINUE
        if run.hooks.listens(events.PROVIDER_REQUEST):
            # Hooks get copies of the context's rows, and change them through their result.
            if state.copies is None:
                state.copies = Copies()
            payload = {"provider": model.name, "messages": state.copies.of(rows), "model": model.model}
            hook_result = await run.consult(events.PROVIDER_REQUEST, payload)
            modified, lasting = _changed_rows(hook_result, rows), lasting_rows(hook_result)
            # The context has the lasting injections by now; modified rows lack them.
            rows = await self._rows(model) if lasting and modified is rows else [*modified, *lasting]
        ephemeral = run.ephemeral.copy()
        del run.ephemeral[pending:]  # of the hooks of this request; those of a repeated one inject again
        shown, after = _with_ephemeral(rows, ephemeral) if ephemeral else (rows, ())
        request = model.requests.build(shown, after, tools_allowed=tools_allowed)
        if hook_result.data and hook_result.data.get("model") is not None:
            chosen = changed(hook_result, "model", model.model or "")
            request.model = chosen if chosen != model.model else None
        return rows, request

    async def _rows(self, model: Model) -> list[Row]:
        reading = self._run.context.get_messages_for_request(
            token_budget=self._run.session_state.token_budgets.get(model.name), provider=model.provider
        )
        try:
            return await with_timeout(_MAX_READ_S, reading, self._run.ending)
        except TimeoutError:
            self._run.check_end()
            raise


class WrittenText:
    """Reports that a model call writes text for people, and then the text itself, without delaying the stream.

    `writing` is reported once, when the text has more than a sentence. A longer text is reported in batches, as
    `writing:text` with the `text`, the number of the `part` that it belongs to, and its place `at` in it.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._part, self._at = run.interim_texts.next_number, len(run.interim_texts.pending_text)
        self._pieces: list[str] = []
        self._chars = 0
        self._reports: list[CancellableTask[None]] = []

    def add(self, delta: str) -> None:
        """Take a text delta; this is the hot path."""
        self._pieces.append(delta)
        before, self._chars = self._chars, self._chars + len(delta)
        if before <= _SENTENCE_CHARS < self._chars:
            self._reports.append(CancellableTask(self._run.progress("writing")))
        if before <= _SHOWN_CHARS < self._chars:
            self._reports.append(CancellableTask(self._report()))

    async def _report(self) -> None:
        while True:
            text, self._pieces = "".join(self._pieces), []
            if text:
                await self._run.progress("writing:text", text=text, part=self._part, at=self._at)
                self._at += len(text)
            await asyncio.sleep(_BETWEEN_REPORTS_S)

    async def end(self) -> None:
        """End the reports: the answer itself follows."""
        for report in self._reports[1:]:
            report.cancel()
        for report in self._reports:
            await report.wait()


class _StreamingCall:
    """A call in flight, with a stall timeout."""

    def __init__(self, run: Run, model: Model, request: ChatRequest, stream: ResponseStream) -> None:
        self._run = run
        self._model = model
        self._stream = stream
        self._seen_pieces = 0
        self._has_stalled = False
        self.was_interrupted = False
        self.task = CancellableTask(self._complete(request))
        if model.stall_timeout_s is not None:
            run.deadlines.set(self, model.stall_timeout_s, self._check_progress)

    async def _complete(self, request: ChatRequest) -> ChatResponse:
        thinking = {"extended_thinking": True} if self._run.options.extended_thinking else {}
        try:
            return await self._model.provider.complete(request, stream=self._stream, **thinking)
        except SystemExit as e:  # a provider must not end the process
            raise ProviderUnavailableError("The provider tried to end the process.", provider=self._model.name) from e

    def _check_progress(self) -> None:
        if self._stream.pieces == self._seen_pieces:
            self._has_stalled = True
            self.task.cancel()
        else:
            self._seen_pieces = self._stream.pieces
            self._run.deadlines.set(self, self._model.stall_timeout_s or 0, self._check_progress)

    @property
    def error(self) -> Exception:
        """Why there is no answer: the provider failed, stalled, or returned an invalid result."""
        name = self._model.name
        if self._has_stalled:
            seconds = f"{self._model.stall_timeout_s or 0:g}"
            return LLMTimeoutError(f"The model sent no data for {seconds} seconds.", provider=name)
        if not self.task.is_finished:
            return ProviderUnavailableError("The call to the model was cancelled.", provider=name)
        return self.task.error or LLMError(
            f"The provider returned {type(self.task.value).__name__} instead of a ChatResponse.", provider=name
        )


def _is_final(error: Exception) -> bool:
    return isinstance(error, _FINAL) and getattr(error, "status_code", None) != _RATE_LIMITED


class RetryPolicy:
    """Recovers from a failed call: retry after a back-off, fall back to another provider, or shrink the request.

    Args:
        provider: name of the provider to call.
        failures: failures of this provider since its last answer.
        shrinks: how often the request was shrunk since then.
    """

    def __init__(self, run: Run, providers: Mapping[str, Provider]) -> None:
        if not providers:
            raise RuntimeError("No provider is mounted.")
        default = run.options.default_provider
        if default is not None and default not in providers:
            log.warning("provider.default_missing", provider=default, mounted=list(providers))
            default = None
        self._run = run
        self._others = sorted(
            (name for name in providers if name != default), key=lambda name: _priority(name, providers[name])
        )
        self.provider = self._others.pop(0) if default is None else default
        self.failures = 0
        self.shrinks = 0
        self._first_error: Exception | None = None

    async def recover(self, error: BaseException, rows: Sequence[dict[str, Any]]) -> None:
        """Return when the call may be repeated; `rows` are the conversation's rows in the failed request.

        Raises:
            RunStopped, RunSuspended: the run was stopped or suspended during the wait.
            Exception: the error, if neither a retry nor a fallback can help.
        """
        if isinstance(error, ContextLengthError) and self.shrinks < _MAX_SHRINKS:
            self.shrinks += 1
            budget = self._run.session_state.token_budgets[self.provider] = int(sum(map(estimate, rows)) * _SHRINK_TO)
            log.warning("context.too_long", provider=self.provider, token_budget=budget)
        elif isinstance(error, LLMError) and (delay_s := self._delay_s(error)) is not None:
            await self._wait(error, delay_s)
        elif isinstance(error, Exception) and self._others and not _is_final(error):
            await self._fall_back(error)
        else:
            raise error from self._first_error or error.__cause__

    def _delay_s(self, error: LLMError) -> float | None:
        """Return the delay before the retry, in seconds; None if this provider is not to be retried."""
        if not error.retryable or self.failures >= self._run.options.max_retries:
            return None
        doubled = 2.0 ** min(self.failures, 60)  # a larger exponent may overflow
        backoff_s = min(self._run.options.retry_base_delay_s * doubled, _MAX_BACKOFF_S)
        jitter_s = random.uniform(0, backoff_s / 2)  # noqa: S311 - jitter, not security
        if error.retry_after is None:
            return backoff_s - jitter_s
        return max(error.retry_after, 0) + jitter_s if error.retry_after <= _MAX_WAIT_S else None

    async def _wait(self, error: LLMError, delay_s: float) -> None:
        self.failures += 1
        data = {"provider": self.provider, "attempt": self.failures, "delay_s": delay_s, "error": str(error)}
        log.info("provider.retry", **data)
        await self._run.announce(events.PROVIDER_RETRY, data)
        reasons = {RateLimitError: "rate_limit", LLMTimeoutError: "timeout"}
        reason = next((name for kind, name in reasons.items() if isinstance(error, kind)), "unavailable")
        await self._run.progress("retrying", **data, max_attempts=self._run.options.max_retries, reason=reason)
        waiting = CancellableTask(asyncio.sleep(delay_s))
        with self._run.ending.watch(waiting.cancel):
            await waiting.wait()
        self._run.check_end()

    async def _fall_back(self, error: Exception) -> None:
        given_up, self.provider = self.provider, self._others.pop(0)
        self.failures = self.shrinks = 0
        self._first_error = self._first_error or error
        data = {"provider": given_up, "to": self.provider, "error": str(error)}
        log.warning("provider.fallback", **data)
        await self._run.announce(PROVIDER_FALLBACK, data)
        await self._run.progress("fallback", **data)


def _priority(name: str, provider: Provider) -> float:
    """Return the rank of a provider: the lowest is called first, equal ones in the order of the plan."""
    priority: Any = inf  # of a provider whose priority cannot be read
    with ErrorBoundary(log, "provider.priority_failed", level="warning", provider=name):
        priority = getattr(provider, "priority", None)
    return priority if isinstance(priority, int | float) else 100  # the default of Amplifier's providers


def _calls_in(answer: ChatResponse, provider: Provider) -> list[ToolCall]:
    with convert_exits():
        calls: Any = provider.parse_tool_calls(answer)
    if isinstance(calls, Coroutine):
        calls.close()
    returned: list[ToolCall] = list(calls or ())
    for call in returned:
        if not isinstance(call, ToolCall):
            raise TypeError(f"parse_tool_calls() returned a {type(call).__name__} instead of a ToolCall.")
    return returned


def _answered_so_far(kept: list[ContentBlock], usage: Usage | None) -> ChatResponse:
    return ChatResponse(content=kept, tool_calls=calls_of(kept) or None, usage=usage, finish_reason=INTERRUPTED)


def _changed_rows(hook_result: HookResult, rows: list[Row]) -> list[Row]:
    modified = changed(hook_result, "messages", rows)
    if modified is rows:
        return rows
    if problem := next((problem for row in modified if (problem := unreadable(row))), None):
        log.warning("hook.modification_invalid", hook=hook_result.hook_name, part="messages", problem=problem)
        return rows
    return modified


def _with_ephemeral(rows: list[Row], ephemeral: Sequence[ContextInjection]) -> tuple[list[Row], list[Row]]:
    """Add ephemeral injections to the last tool result of a request, or as rows after its end."""
    after = []
    for injection in ephemeral:
        if injection.append_to_last_tool_result and rows and rows[-1]["role"] == "tool":
            rows = [*rows[:-1], _ending_with(rows[-1], injection.content)]
        else:
            after.append(marked(injected_row(injection), source="hook"))
    return rows, after


def _ending_with(row: Row, injection: str) -> Row:
    injection = without_frames(injection)  # it may quote outside text
    said = row["content"]
    ended = [*said, {"type": "text", "text": injection}] if isinstance(said, list) else f"{said}\n\n{injection}"
    return {**row, "content": ended}
