"""One model call: the request, its hooks, the streamed answer, and the kept part of a cancelled one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import LLMError, LLMTimeoutError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, ResponseStream, ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.kernel.interop import ForeignProvider, to_local_provider
from orchestrator_interactive.kernel.timeout import with_timeout
from orchestrator_interactive.loop.outcome import usage_totals, with_usage
from orchestrator_interactive.loop.retry import RetryPolicy
from orchestrator_interactive.loop.run import RunStopped, RunSuspended, changed, injected_row, lasting_rows
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.transcript.answer_parts import mark_partial
from orchestrator_interactive.transcript.framing import without_frames
from orchestrator_interactive.transcript.rows import assistant_row, marked
from orchestrator_interactive.transcript.transcript import RequestBuilder, unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock, Usage
    from orchestrator_interactive.kernel.contracts.models import ContextInjection, HookResult
    from orchestrator_interactive.kernel.contracts.protocols import Provider
    from orchestrator_interactive.loop.injection_queue import Injection
    from orchestrator_interactive.loop.run import LoopOptions, Run
    from orchestrator_interactive.loop.tool_calls import ToolExecutor

log = structlog.get_logger(__name__)

# Finish reason of an answer that an urgent message interrupted.
INTERRUPTED = "interrupted"
# Reading may include a summary by the model.
_MAX_READ_S = 3600.0

Row = dict[str, Any]


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
        self._retry_policy = RetryPolicy(run, _in_order(providers, run.options.default_provider))
        self._models: dict[str, Model] = {}
        self.model: Model  # of the last call
        self._call: StreamingCall | None = None

    def cancel(self) -> None:
        """Cancel the call in flight, because the run ends."""
        if self._call is not None:
            self._call.task.cancel()

    def on_injection(self, injection: Injection) -> None:
        """Interrupt the call in flight if the message is urgent."""
        if injection.urgent and self._call is not None:
            self._call.interrupt()

    def _model_to_call(self) -> Model:
        name = self._retry_policy.provider
        if name not in self._models:
            provider = to_local_provider(self._providers[name])
            stall_timeout_s = None if isinstance(provider, ForeignProvider) else self._run.options.stall_timeout_s
            model = provider.get_info().defaults.get("model")
            requests = RequestBuilder(provider, self._run.tools, self._run.session_state.cached_messages().transcript)
            self._models[name] = Model(name, provider, model, requests, stall_timeout_s)
        return self._models[name]

    async def ask(self, *, tools_allowed: bool) -> ChatResponse | None:
        """Call the model with the current conversation. Returns None if the call is to be repeated.

        An urgent message interrupts the answer; its finish reason is then `INTERRUPTED`.

        Raises:
            RunStopped: the call was cancelled; its partial answer is in the context already.
            RunSuspended: the call was abandoned.
            RunDenied: a hook denied the request or the answer.
            LLMError: the provider failed or stalled, and neither retries nor fallback helped.
        """
        model = self.model = self._model_to_call()
        ephemeral = self._run.take_ephemeral()
        rows, request = await self._request(model, ephemeral, tools_allowed=tools_allowed)
        if self._run.inbox.has_urgent:  # it arrived during hooks or compaction
            self._run.restore_ephemeral(ephemeral)
            return None
        early = partial(self._calls.begin_early, is_used=model.requests.is_used, seen=set()) if tools_allowed else None
        stream = ResponseStream(early)
        call = self._call = StreamingCall(self._run, model, request, stream)
        try:
            if self._run.ending.is_cancelled:
                call.task.cancel()
            await call.task.wait()
        finally:
            self._call = None
            self._run.deadlines.clear(call)
            stream.close()  # ignore what the provider still sends
        answer = call.answer
        usage = answer.usage if answer else stream.usage
        if usage is not None:
            self._run.usage = self._run.usage.plus(usage_totals(usage))
        if self._run.is_suspended:
            raise RunSuspended
        if self._run.is_stopped:
            await self._keep(stream.valid_blocks(answer.content if answer else None), usage)
        if answer is None and call.was_interrupted:
            # Tool calls that began early continue.
            answer = _answered_so_far(stream.valid_blocks(calls=self._calls.early), usage)
            self._run.restore_ephemeral(ephemeral)
        if answer is None:
            await self._calls.drop_early()
            self._run.restore_ephemeral(ephemeral)
            await self._run.announce(events.PROVIDER_ERROR, {"provider": model.name, "error": call.error})
            await self._retry_policy.recover(call.error, rows)
            return None
        self._retry_policy.succeeded()
        if not self._run.hooks.listens(events.PROVIDER_RESPONSE):
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

    async def _keep(self, kept: list[ContentBlock], usage: Usage | None) -> NoReturn:
        if kept:
            await self._run.commit(mark_partial(with_usage(assistant_row(kept), usage), "stopped"))
        raise RunStopped

    async def _request(
        self, model: Model, ephemeral: list[ContextInjection], *, tools_allowed: bool
    ) -> tuple[Sequence[Row], ChatRequest]:
        run = self._run
        rows = await self._rows(model)
        hook_result = CONTINUE
        if run.hooks.listens(events.PROVIDER_REQUEST):
            # Hooks get copies of the context's rows, and change them through their result.
            payload = {
                "provider": model.name,
                "messages": self._run.session_state.cached_messages().copies.of(rows),
                "model": model.model,
            }
            hook_result = await run.consult(events.PROVIDER_REQUEST, payload)
            modified, lasting = _changed_rows(hook_result, rows), lasting_rows(hook_result)
            # The context has the lasting injections by now; modified rows lack them.
            rows = await self._rows(model) if lasting and modified is rows else [*modified, *lasting]
            ephemeral = ephemeral + run.take_ephemeral()
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


class StreamingCall:
    """A call in flight, with a stall timeout."""

    def __init__(self, run: Run, model: Model, request: ChatRequest, stream: ResponseStream) -> None:
        self._model = model
        self._stream = stream
        self._deadlines = run.deadlines
        self._seen_pieces = 0
        self._has_stalled = False
        self.was_interrupted = False
        self.task = CancellableTask(_completed(model, request, stream, run.options))
        if model.stall_timeout_s is not None:
            run.deadlines.set(self, model.stall_timeout_s, self._check_progress)

    def interrupt(self) -> None:
        if not self.task.is_over:
            self.was_interrupted = True
            self.task.cancel()

    @property
    def answer(self) -> ChatResponse | None:
        """The answer, if it is complete."""
        if not self.task.is_finished or self.task.error is not None:
            return None
        answer = self.task.result()
        return answer if isinstance(answer, ChatResponse) else None

    @property
    def error(self) -> Exception:
        """Why there is no answer: the provider failed, stalled, or returned an invalid result."""
        name = self._model.name
        if self._has_stalled:
            seconds = f"{self._model.stall_timeout_s or 0:g}"
            return LLMTimeoutError(f"The model sent no data for {seconds} seconds.", provider=name)
        if not self.task.is_finished:
            return ProviderUnavailableError("The call to the model was cancelled.", provider=name)
        if self.task.error is not None:
            return self.task.error
        kind = type(self.task.result()).__name__
        return LLMError(f"The provider returned {kind} instead of a ChatResponse.", provider=name)

    def _check_progress(self) -> None:
        if self._stream.pieces == self._seen_pieces:
            self._has_stalled = True
            self.task.cancel()
        else:
            self._seen_pieces = self._stream.pieces
            self._deadlines.set(self, self._model.stall_timeout_s or 0, self._check_progress)


async def _completed(model: Model, request: ChatRequest, stream: ResponseStream, options: LoopOptions) -> ChatResponse:
    thinking = {"extended_thinking": True} if options.extended_thinking else {}
    try:
        return await model.provider.complete(request, stream=stream, **thinking)
    except SystemExit as e:  # a provider must not end the process
        raise ProviderUnavailableError("The provider tried to end the process.", provider=model.name) from e


def _answered_so_far(kept: list[ContentBlock], usage: Usage | None) -> ChatResponse:
    blocks = [block for block in kept if isinstance(block, ToolCallBlock)]
    calls = [ToolCall(id=block.id, name=block.name, arguments=block.input) for block in blocks]
    return ChatResponse(content=kept, tool_calls=calls or None, usage=usage, finish_reason=INTERRUPTED)


def _in_order(providers: Mapping[str, Provider], default: str | None) -> list[str]:
    """Return the names of the providers, the default first."""
    if default is not None and default not in providers:
        raise RuntimeError(f"There is no provider '{default}'. Mounted: {', '.join(providers)}.")
    if not providers:
        raise RuntimeError("No provider is mounted.")
    return sorted(providers, key=lambda name: name != default)


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
