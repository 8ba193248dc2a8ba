"""Asking the model: the request, the hooks around it, and what is kept of an answer that was cut."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.stream import ResponseStream
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.kernel.interop import ForeignProvider, to_local_provider
from orchestrator_interactive.kernel.timeout import within
from orchestrator_interactive.loop.retry import RetryPolicy
from orchestrator_interactive.loop.run import RunStopped, RunSuspended, changed, injected_row, lasting_rows
from orchestrator_interactive.loop.streaming_call import Model, StreamingCall
from orchestrator_interactive.loop.usage import spent_on, with_usage
from orchestrator_interactive.transcript.answer_parts import cut_row
from orchestrator_interactive.transcript.framing import without_frames
from orchestrator_interactive.transcript.request_builder import RequestBuilder, unreadable
from orchestrator_interactive.transcript.rows import assistant_row, marked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock, Usage
    from orchestrator_interactive.kernel.contracts.models import ContextInjection, HookResult
    from orchestrator_interactive.kernel.contracts.protocols import Provider
    from orchestrator_interactive.loop.injection_queue import InjectionQueue
    from orchestrator_interactive.loop.options import LoopOptions
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.tool_calls import ToolExecutor

log = structlog.get_logger(__name__)

# The finish reason of an answer that an urgent message cut.
INTERRUPTED = "interrupted"
# A summary by the model takes its time.
_LONGEST_READ_S = 3600.0

Row = dict[str, Any]


class ModelCaller:
    """All the asking of one run."""

    def __init__(
        self,
        run: Run,
        providers: Mapping[str, Provider],
        calls: ToolExecutor,
        inbox: InjectionQueue,
        options: LoopOptions,
    ) -> None:
        self._run = run
        self._providers = providers
        self._calls = calls
        self._inbox = inbox
        self._options = options
        self._recovery = RetryPolicy(run, _in_order(providers, options.default_provider), options)
        self._models: dict[str, Model] = {}

    @property
    def model(self) -> Model:
        """Whom to ask now."""
        name = self._recovery.provider
        if name not in self._models:
            provider = to_local_provider(self._providers[name])
            patience_s = None if isinstance(provider, ForeignProvider) else self._options.stall_timeout_s
            model = provider.get_info().defaults.get("model")
            requests = RequestBuilder(provider, self._run.tools, self._run.seen.transcript)
            self._models[name] = Model(name, provider, model, requests, patience_s, self._options.extended_thinking)
        return self._models[name]

    async def ask(self, *, tools_allowed: bool) -> ChatResponse | None:
        """Ask the model about the conversation as it stands. `None`: it is to be asked again.

        An urgent message cuts the answer; its finish reason then is `INTERRUPTED`.

        Raises:
            RunStopped: the call was cut; what the model had said is in the context already.
            RunSuspended: it was given up.
            RunDenied: a hook refused the request or the answer.
            LLMError: the provider failed, was silent for too long, and nothing else helped.
        """
        model, remarks = self.model, self._run.take_remarks()
        rows, request = await self._request(model, remarks, tools_allowed=tools_allowed)
        if self._inbox.has_urgent:  # it came while hooks looked at the request, or the context was summed up
            self._run.put_back(remarks)
            return None
        early = partial(self._calls.begin_early, is_used=model.requests.is_used, seen=set()) if tools_allowed else None
        stream = ResponseStream(early)
        call = StreamingCall(model, request, stream)
        await call.end(self._run.ending, self._inbox)
        answer = call.answer
        usage = answer.usage if answer else stream.usage
        if usage is not None:
            self._run.spent = self._run.spent.plus(spent_on(usage))
        if self._run.is_suspended:
            raise RunSuspended
        if self._run.is_stopped:
            await self._keep(stream.kept(answer.content if answer else None), usage)
        if call.was_interrupted:
            # Calls that are at work already are not harmed.
            answer = _answered_so_far(stream.kept(calls=self._calls.early_ids), usage)
            self._run.put_back(remarks)
        if answer is None:
            await self._calls.drop_early()
            self._run.put_back(remarks)
            await self._run.announce(events.PROVIDER_ERROR, {"provider": model.name, "error": call.error})
            await self._recovery.recover(call.error, rows)
            return None
        self._recovery.succeeded()
        return await self._checked(model, answer, stream)

    async def _checked(self, model: Model, answer: ChatResponse, stream: ResponseStream) -> ChatResponse:
        payload = {"provider": model.name, "response": answer, "usage": answer.usage}
        try:
            wish = await self._run.consult(events.PROVIDER_RESPONSE, payload)
        except RunStopped as e:
            if e.wish is None:  # a hook was still looking at the answer, and might have refused it
                raise
            await self._keep(stream.kept(changed(e.wish, "response", answer).content), answer.usage)
        return changed(wish, "response", answer)

    async def _keep(self, kept: list[ContentBlock], usage: Usage | None) -> NoReturn:
        if kept:
            await self._run.commit(cut_row(with_usage(assistant_row(kept), usage), "stopped"))
        raise RunStopped

    async def _request(
        self, model: Model, remarks: list[ContextInjection], *, tools_allowed: bool
    ) -> tuple[Sequence[Row], ChatRequest]:
        run = self._run
        rows = await self._rows(model)
        wish = CONTINUE
        if run.hooks.listens(events.PROVIDER_REQUEST):
            # The rows are the context's own: hooks get copies, and change them by saying so.
            payload = {"provider": model.name, "messages": self._run.seen.copies.of(rows), "model": model.model}
            wish = await run.consult(events.PROVIDER_REQUEST, payload)
            modified, lasting = _changed_rows(wish, rows), lasting_rows(wish)
            # The injections stand in the context by now; modified rows do not know of them.
            rows = await self._rows(model) if lasting and modified is rows else [*modified, *lasting]
            remarks = remarks + run.take_remarks()
        shown, after = _with_remarks(rows, remarks)
        request = model.requests.build(shown, after, tools_allowed=tools_allowed)
        if wish.data and wish.data.get("model") is not None:
            chosen = changed(wish, "model", model.model or "")
            request.model = chosen if chosen != model.model else None
        return rows, request

    async def _rows(self, model: Model) -> list[Row]:
        reading = self._run.context.get_messages_for_request(
            token_budget=self._run.token_budgets.get(model.name), provider=model.provider
        )
        try:
            return await within(_LONGEST_READ_S, reading, self._run.ending)
        except TimeoutError:
            self._run.check_end()
            raise


def _answered_so_far(kept: list[ContentBlock], usage: Usage | None) -> ChatResponse:
    blocks = [block for block in kept if isinstance(block, ToolCallBlock)]
    calls = [ToolCall(id=block.id, name=block.name, arguments=block.input) for block in blocks]
    return ChatResponse(content=kept, tool_calls=calls or None, usage=usage, finish_reason=INTERRUPTED)


def _in_order(providers: Mapping[str, Provider], default: str | None) -> list[str]:
    """The names of the providers, the one to ask first in front."""
    if default is not None and default not in providers:
        raise RuntimeError(f"There is no provider '{default}'. Mounted: {', '.join(providers)}.")
    if not providers:
        raise RuntimeError("No provider is mounted.")
    return sorted(providers, key=lambda name: name != default)


def _changed_rows(wish: HookResult, rows: list[Row]) -> list[Row]:
    modified = changed(wish, "messages", rows)
    if modified is rows:
        return rows
    if problem := next((problem for row in modified if (problem := unreadable(row))), None):
        log.warning("hook.modified_to_nonsense", hook=wish.hook_name, part="messages", problem=problem)
        return rows
    return modified


def _with_remarks(rows: list[Row], remarks: Sequence[ContextInjection]) -> tuple[list[Row], list[Row]]:
    """The rows of this request with the hooks' passing remarks: in the last tool result, or after everything."""
    after = []
    for remark in remarks:
        if remark.append_to_last_tool_result and rows and rows[-1]["role"] == "tool":
            rows = [*rows[:-1], _ending_with(rows[-1], remark.content)]
        else:
            after.append(marked(injected_row(remark), source="hook"))
    return rows, after


def _ending_with(row: Row, remark: str) -> Row:
    remark = without_frames(remark)  # it may quote outside text
    said = row["content"]
    ended = [*said, {"type": "text", "text": remark}] if isinstance(said, list) else f"{said}\n\n{remark}"
    return {**row, "content": ended}
