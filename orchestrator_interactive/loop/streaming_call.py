"""One streaming call to a model, which can be cancelled at any time and has a stall timeout."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts.errors import LLMError, LLMTimeoutError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse
from orchestrator_interactive.loop.tasks import CancellableTask

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.cancellation import CancellationToken
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from orchestrator_interactive.kernel.contracts.protocols import Provider
    from orchestrator_interactive.kernel.contracts.stream import ResponseStream
    from orchestrator_interactive.loop.injection_queue import Injection, InjectionQueue
    from orchestrator_interactive.transcript.transcript import RequestBuilder


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
    extended_thinking: bool = False


class StreamingCall:
    """A call in flight. The end of its run and an urgent message cancel it."""

    def __init__(self, model: Model, request: ChatRequest, stream: ResponseStream) -> None:
        self._model = model
        self._stream = stream
        self._task = CancellableTask(_completed(model, request, stream))
        self._was_interrupted = False

    async def end(self, ending: CancellationToken, inbox: InjectionQueue) -> None:
        """Wait until the call has ended or was cancelled."""
        self._watchdog = _Watchdog(self._task, self._stream, self._model.stall_timeout_s)
        try:
            with ending.watch(self._task.cancel), inbox.watch(self._on_message):
                await self._task.wait()
        finally:
            self._watchdog.disarm()
            self._stream.close()

    @property
    def was_interrupted(self) -> bool:
        """Whether an urgent message cancelled the call before it ended."""
        return self._was_interrupted and self.answer is None

    @property
    def answer(self) -> ChatResponse | None:
        """The answer, if it is complete."""
        finished = self._task.has_outcome() and self._task.task.exception() is None
        answer = self._task.task.result() if finished else None
        return answer if isinstance(answer, ChatResponse) else None

    @property
    def error(self) -> BaseException:
        """Why there is no answer: the provider failed, stalled, or returned an invalid result."""
        model = self._model
        if self._watchdog.has_expired:
            return LLMTimeoutError(
                f"The model sent no data for {model.stall_timeout_s or 0:g} seconds.", provider=model.name
            )
        if not self._task.has_outcome():
            return ProviderUnavailableError("The call to the model was cancelled.", provider=model.name)
        if error := self._task.task.exception():
            return error
        kind = type(self._task.task.result()).__name__
        return LLMError(f"The provider returned {kind} instead of a ChatResponse.", provider=model.name)

    def _on_message(self, injection: Injection) -> None:
        if injection.urgent and not self._task.task.done():
            self._was_interrupted = True
            self._task.cancel()


async def _completed(model: Model, request: ChatRequest, stream: ResponseStream) -> ChatResponse:
    thinking = {"extended_thinking": True} if model.extended_thinking else {}
    try:
        return await model.provider.complete(request, stream=stream, **thinking)
    except SystemExit as e:  # a provider must not end the process
        raise ProviderUnavailableError("The provider tried to end the process.", provider=model.name) from e


class _Watchdog:
    """Cancels a model call whose stream has stalled."""

    def __init__(self, work: CancellableTask[ChatResponse], stream: ResponseStream, timeout_s: float | None) -> None:
        self._task, self._stream, self._timeout_s = work, stream, timeout_s
        self.has_expired = False
        self._seen_pieces = -1
        self._timer: asyncio.TimerHandle | None = None
        self._check()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        if self._timeout_s is None:
            return
        if self._stream.pieces == self._seen_pieces:
            self.has_expired = True
            self._task.cancel()
        else:
            self._seen_pieces = self._stream.pieces
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._check)
