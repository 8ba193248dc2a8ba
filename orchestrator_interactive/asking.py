"""One call to the model: the request, the hooks around it, and what is kept when it is cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.errors import LLMTimeoutError, ProviderUnavailableError
from orchestrator_interactive.kernel.stream import ResponseStream
from orchestrator_interactive.rows import assistant_row
from orchestrator_interactive.run import RunStopped
from orchestrator_interactive.work import Work

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.messages import ChatRequest, ChatResponse, ContentBlock
    from orchestrator_interactive.kernel.models import HookResult
    from orchestrator_interactive.requests import RequestBuilder
    from orchestrator_interactive.run import Run


async def ask(run: Run, requests: RequestBuilder, *, tools_allowed: bool, stall_timeout_s: float) -> ChatResponse:
    """Ask the model about the conversation as it stands.

    Raises:
        RunStopped: the call was cut; what the model had said is in the context already.
        RunDenied: a hook refused the request.
        LLMError: the provider failed, or was silent for `stall_timeout_s` seconds.
    """
    request = await _request(run, requests, tools_allowed=tools_allowed)
    stream = ResponseStream()
    response = await _call(run, request, stream, stall_timeout_s)
    payload = {"provider": run.provider_name, "response": response, "usage": response.usage}
    wish = await run.consult(events.PROVIDER_RESPONSE, payload)
    changed: ChatResponse = (wish.data or {}).get("response", response)
    return changed


async def _request(run: Run, requests: RequestBuilder, *, tools_allowed: bool) -> ChatRequest:
    rows = await run.context.get_messages_for_request(provider=run.provider)
    payload = {"provider": run.provider_name, "messages": rows, "model": None}
    wish = await run.consult(events.PROVIDER_REQUEST, payload)
    rows = (wish.data or {}).get("messages", rows)
    ephemeral: list[dict[str, Any]] = []
    if wish.action == "inject_context":
        if wish.ephemeral:
            rows, ephemeral = _with_ephemeral(rows, wish)
        else:
            rows = await run.context.get_messages_for_request(provider=run.provider)
    return requests.build(rows, tools_allowed=tools_allowed, ephemeral=ephemeral)


def _with_ephemeral(rows: list[dict[str, Any]], wish: HookResult) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of this request with a hook's passing remark: in the last tool result, or after everything."""
    text = wish.context_injection or ""
    if wish.append_to_last_tool_result and rows and rows[-1]["role"] == "tool":
        last = {**rows[-1], "content": f"{rows[-1]['content']}\n\n{text}"}
        return [*rows[:-1], last], []
    return rows, [{"role": wish.context_injection_role, "content": text}]


async def _call(run: Run, request: ChatRequest, stream: ResponseStream, stall_timeout_s: float) -> ChatResponse:
    work = Work(run.provider.complete(request, stream=stream))
    watchdog = _Watchdog(work, stream, stall_timeout_s)
    try:
        with run.stop.watch(work.cut):
            await work.end()
    finally:
        watchdog.disarm()
    if run.stop.is_cancelled:
        finished = work.finished() and work.task.exception() is None
        await _keep(run, stream.kept(work.task.result().content if finished else None))
    try:
        return _answer(run, work, watchdog)
    except Exception as e:
        await run.hooks.emit(events.PROVIDER_ERROR, {"provider": run.provider_name, "error": e})
        raise


def _answer(run: Run, work: Work[ChatResponse], watchdog: _Watchdog) -> ChatResponse:
    if watchdog.barked:
        raise LLMTimeoutError(f"The model was silent for {watchdog.timeout_s:g} seconds.", provider=run.provider_name)
    if work.task.cancelled():
        raise ProviderUnavailableError("The call to the model was cancelled.", provider=run.provider_name)
    return work.task.result()


async def _keep(run: Run, kept: list[ContentBlock]) -> None:
    if kept:
        await run.context.add_message(assistant_row(kept))
    raise RunStopped("".join(getattr(block, "text", "") for block in kept))


class _Watchdog:
    """Cuts a model call whose stream has been silent for too long."""

    def __init__(self, work: Work[ChatResponse], stream: ResponseStream, timeout_s: float) -> None:
        self._work, self._stream, self.timeout_s = work, stream, timeout_s
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
            self._timer = self._loop.call_later(self.timeout_s, self._look)
