"""One call to the model: the request, the hooks around it, and what is kept when it is cut."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.errors import LLMTimeoutError, ProviderUnavailableError
from orchestrator_interactive.kernel.stream import ResponseStream
from orchestrator_interactive.rows import assistant_row
from orchestrator_interactive.run import RunStopped, injected_row
from orchestrator_interactive.work import Work

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.interfaces import Provider
    from orchestrator_interactive.kernel.messages import ChatRequest, ChatResponse, ContentBlock
    from orchestrator_interactive.requests import RequestBuilder
    from orchestrator_interactive.run import Run


@dataclass(frozen=True, slots=True)
class Model:
    """Whom a run asks, and how patiently: `stall_timeout_s` is how long a call may be silent, in seconds."""

    name: str
    provider: Provider
    requests: RequestBuilder
    stall_timeout_s: float


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
    except RunStopped:
        await _keep(run, stream.kept(response.content))
    changed: ChatResponse = (wish.data or {}).get("response", response)
    return changed


async def _request(run: Run, model: Model, *, tools_allowed: bool) -> ChatRequest:
    rows = await run.context.get_messages_for_request(provider=model.provider)
    payload = {"provider": model.name, "messages": rows, "model": None}
    wish = await run.consult(events.PROVIDER_REQUEST, payload)
    modified = (wish.data or {}).get("messages")
    if wish.action == "inject_context" and not wish.ephemeral:
        # The injection stands in the context by now; modified rows do not know of it.
        rows = (
            await run.context.get_messages_for_request(provider=model.provider)
            if modified is None
            else [*modified, injected_row(wish)]
        )
    elif modified is not None:
        rows = modified
    return model.requests.build(*_with_remarks(run, rows), tools_allowed=tools_allowed)


def _with_remarks(run: Run, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of this request with the hooks' passing remarks: in the last tool result, or after everything."""
    after = []
    for remark in run.take_remarks():
        if remark.append_to_last_tool_result and rows and rows[-1]["role"] == "tool":
            last = {**rows[-1], "content": f"{rows[-1]['content']}\n\n{remark.context_injection}"}
            rows = [*rows[:-1], last]
        else:
            after.append(injected_row(remark))
    return rows, after


async def _call(run: Run, model: Model, request: ChatRequest, stream: ResponseStream) -> ChatResponse:
    work = Work(model.provider.complete(request, stream=stream))
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
        await run.hooks.emit(events.PROVIDER_ERROR, {"provider": model.name, "error": e})
        raise


def _answer(model: Model, work: Work[ChatResponse], watchdog: _Watchdog) -> ChatResponse:
    if watchdog.barked:
        raise LLMTimeoutError(f"The model was silent for {model.stall_timeout_s:g} seconds.", provider=model.name)
    if work.task.cancelled():
        raise ProviderUnavailableError("The call to the model was cancelled.", provider=model.name)
    return work.task.result()


async def _keep(run: Run, kept: list[ContentBlock]) -> NoReturn:
    if kept:
        await run.context.add_message(assistant_row(kept))
    raise RunStopped("".join(getattr(block, "text", "") for block in kept))


class _Watchdog:
    """Cuts a model call whose stream has been silent for too long."""

    def __init__(self, work: Work[ChatResponse], stream: ResponseStream, timeout_s: float) -> None:
        self._work, self._stream, self._timeout_s = work, stream, timeout_s
        self.barked = False
        self._loop = asyncio.get_running_loop()
        self._heard = stream.pieces
        self._timer = self._loop.call_later(timeout_s, self._look)

    def disarm(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._stream.pieces == self._heard:
            self.barked = True
            self._work.cut()
        else:
            self._heard = self._stream.pieces
            self._timer = self._loop.call_later(self._timeout_s, self._look)
