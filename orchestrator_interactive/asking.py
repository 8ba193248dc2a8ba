"""One call to the model: the request, the hooks around it, and what is kept when it is cut."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.errors import LLMError, LLMTimeoutError, ProviderUnavailableError
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.kernel.messages import ChatResponse
from orchestrator_interactive.kernel.stream import ResponseStream
from orchestrator_interactive.requests import unreadable
from orchestrator_interactive.rows import assistant_row
from orchestrator_interactive.run import RunStopped, changed, injected_row, lasting_rows
from orchestrator_interactive.work import Work

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.interfaces import Provider
    from orchestrator_interactive.kernel.messages import ChatRequest, ContentBlock
    from orchestrator_interactive.kernel.models import HookResult
    from orchestrator_interactive.requests import RequestBuilder
    from orchestrator_interactive.run import Run

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Model:
    """Whom a run asks, and how patiently: `stall_timeout_s` is how long a call may be silent, in seconds.

    It is `None` for a provider that is silent until it has its whole answer. `model` is the one that it asks unless it
    is told another, where it says so.
    """

    name: str
    provider: Provider
    model: str | None
    requests: RequestBuilder
    stall_timeout_s: float | None


async def ask(run: Run, model: Model, *, tools_allowed: bool) -> ChatResponse:
    """Ask the model about the conversation as it stands.

    Raises:
        RunStopped: the call was cut; what the model had said is in the context already.
        RunDenied: a hook refused the request.
        LLMError: the provider failed, or was silent for too long.
    """
    request = await _request(run, model, tools_allowed=tools_allowed)
    stream = ResponseStream()
    response = await _call(run, model, request, stream)
    payload = {"provider": model.name, "response": response, "usage": response.usage}
    try:
        wish = await run.consult(events.PROVIDER_RESPONSE, payload)
    except RunStopped as e:
        if e.wish is None:  # a hook was still looking at the answer, and might have refused it
            raise
        await _keep(run, stream.kept(changed(e.wish, "response", response).content))
    return changed(wish, "response", response)


async def _request(run: Run, model: Model, *, tools_allowed: bool) -> ChatRequest:
    rows = await run.context.get_messages_for_request(provider=model.provider)
    wish = CONTINUE
    if run.hooks.listens(events.PROVIDER_REQUEST):
        # The rows are the context's own: hooks get copies, and change them by saying so.
        payload = {"provider": model.name, "messages": deepcopy(rows), "model": model.model}
        wish = await run.consult(events.PROVIDER_REQUEST, payload)
        modified, lasting = _changed_rows(wish, rows), lasting_rows(wish)
        if lasting and modified is rows:
            rows = await run.context.get_messages_for_request(provider=model.provider)
        else:
            # The injections stand in the context by now; modified rows do not know of them.
            rows = [*modified, *lasting]
    request = model.requests.build(*_with_remarks(run, rows), tools_allowed=tools_allowed)
    if wish.data and wish.data.get("model") is not None:
        chosen = changed(wish, "model", model.model or "")
        request.model = chosen if chosen != model.model else None
    return request


def _changed_rows(wish: HookResult, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    modified = changed(wish, "messages", rows)
    if modified is rows:
        return rows
    if problem := next((problem for row in modified if (problem := unreadable(row))), None):
        log.warning("hook.modified_to_nonsense", hook=wish.hook_name, part="messages", problem=problem)
        return rows
    return modified


def _with_remarks(run: Run, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of this request with the hooks' passing remarks: in the last tool result, or after everything."""
    after = []
    for remark in run.take_remarks():
        if remark.append_to_last_tool_result and rows and rows[-1]["role"] == "tool":
            rows = [*rows[:-1], _ending_with(rows[-1], remark.content)]
        else:
            after.append(injected_row(remark))
    return rows, after


def _ending_with(row: dict[str, Any], remark: str) -> dict[str, Any]:
    said = row["content"]
    ended = [*said, {"type": "text", "text": remark}] if isinstance(said, list) else f"{said}\n\n{remark}"
    return {**row, "content": ended}


async def _call(run: Run, model: Model, request: ChatRequest, stream: ResponseStream) -> ChatResponse:
    work = Work(_completed(model, request, stream))
    watchdog = _Watchdog(work, stream, model.stall_timeout_s)
    try:
        with run.stop.watch(work.cut):
            await work.end()
    finally:
        watchdog.disarm()
    if run.stop.is_cancelled:
        finished = work.finished() and work.task.exception() is None
        await _keep(run, stream.kept(work.task.result().content if finished else None))
    try:
        return _answer(model, work, watchdog)
    except Exception as e:
        await run.announce(events.PROVIDER_ERROR, {"provider": model.name, "error": e})
        raise


async def _completed(model: Model, request: ChatRequest, stream: ResponseStream) -> ChatResponse:
    try:
        return await model.provider.complete(request, stream=stream)
    except SystemExit as e:  # a provider may not end the process
        raise ProviderUnavailableError("The provider tried to end the process.", provider=model.name) from e


def _answer(model: Model, work: Work[ChatResponse], watchdog: _Watchdog) -> ChatResponse:
    if watchdog.barked:
        raise LLMTimeoutError(f"The model was silent for {model.stall_timeout_s or 0:g} seconds.", provider=model.name)
    if work.task.cancelled():
        raise ProviderUnavailableError("The call to the model was cancelled.", provider=model.name)
    answer = work.task.result()
    if not isinstance(answer, ChatResponse):
        raise LLMError(f"The provider answered with {type(answer).__name__}, no ChatResponse.", provider=model.name)
    return answer


async def _keep(run: Run, kept: list[ContentBlock]) -> NoReturn:
    if kept:
        await run.context.add_message(assistant_row(kept))
    raise RunStopped("".join(getattr(block, "text", "") for block in kept))


class _Watchdog:
    """Cuts a model call whose stream has been silent for too long."""

    def __init__(self, work: Work[ChatResponse], stream: ResponseStream, timeout_s: float | None) -> None:
        self._work, self._stream, self._timeout_s = work, stream, timeout_s
        self.barked = False
        self._heard = -1
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if self._timeout_s is None:
            return
        if self._stream.pieces == self._heard:
            self.barked = True
            self._work.cut()
        else:
            self._heard = self._stream.pieces
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._look)
