"""Parts of the service that break what it promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from connector.slack_api.client import SlackClient
from connector.slack_api.history import ThreadHistory
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import events
from service.runs.runs import StoredRuns
from simulated.service.agent import Cast, Tool
from simulated.service.other_workspace import TEAM as OTHER_TEAM
from simulated.service.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    from connector.events import ThreadAddress
    from connector.formatting.content import Content
    from connector.protocols import Persona, SteeringMessage
    from connector.slack_api.rate_limiter import CallSlot
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.kernel import AmplifierSession
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse


class _Blind(ThreadHistory):
    async def messages(
        self, place: ThreadAddress, slot: CallSlot | None = None, oldest: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        async for message in super().messages(place, slot, oldest):
            yield {**message, "metadata": None}


class _ShortSighted(ThreadHistory):
    async def messages(
        self, place: ThreadAddress, slot: CallSlot | None = None, oldest: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        async for message in super().messages(place, slot, oldest):
            if not oldest:
                yield message


class DoesNotCatchUp(SlackClient):
    """Never finds the messages after the mention that called an agent into a thread."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.history = _ShortSighted(self)


class DoesNotLookUp(SlackClient):
    """Never finds a post of its own in a thread."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.history = _Blind(self)


class ServesEveryWorkspace(StoredRuns):
    """Looks after the conversations of a workspace that it is not connected to."""

    def watch(self, workspace: str, on_work: Callable[[str], None]) -> None:
        for each in (workspace, OTHER_TEAM):
            super().watch(each, on_work)


class LeavesStatuses(SlackClient):
    """Deletes nothing."""

    async def delete(self, channel: str, ts: str, run: str = "") -> None:
        """It stays."""


class LeavesMarks(SlackClient):
    """Takes no reaction away."""

    async def unreact(self, channel: str, ts: str, name: str) -> None:
        """It stays."""


class ReadsInSecret(SlackClient):
    """Shows nobody that a message was read."""

    async def react(self, channel: str, ts: str, name: str, *more: Any) -> None:
        if name != "eyes":
            await super().react(channel, ts, name, *more)


class PostsNothing(SlackClient):
    """Takes texts for posted."""

    async def post(
        self, place: ThreadAddress, content: Content, key: str, persona: Persona | None = None, **options: Any
    ) -> str:
        return "1.0" if persona else await super().post(place, content, key, persona, **options)


class PostsTheNewestFirst(SlackClient):
    """Lets a text wait until another one has been posted."""

    async def post(
        self, place: ThreadAddress, content: Content, key: str, persona: Persona | None = None, **options: Any
    ) -> str:
        if persona is not None and ":1:" in key:
            key = f"{key}!"
            asyncio.get_running_loop().call_later(8, self._post_later, place, content, key, persona)
            return "1.0"
        return await super().post(place, content, key, persona, **options)

    def _post_later(self, place: ThreadAddress, content: Content, key: str, persona: Persona) -> None:
        self._later = asyncio.ensure_future(super().post(place, content, key, persona))


class LooksHarmless(Tool):
    """Says of itself that it may be repeated."""

    def __init__(self, cast: Cast, conversation: str, name: str, *, is_harmless: bool) -> None:
        super().__init__(cast, conversation, name, is_harmless=True)


class DeafToStops(Sessions):
    """Does not stop."""

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False) -> bool:
        return True


class TakesItsTime(Sessions):
    """Stops no sooner when it is told again."""

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False) -> bool:
        return super().stop(instance_name, conversation_id)


class SwapsSteers(Sessions):
    """Hands the second of two steers in first."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._held: dict[str, SteeringMessage] = {}

    def inject(self, instance_name: str, conversation_id: str, steer: SteeringMessage) -> bool:
        if (held := self._held.pop(conversation_id, None)) is None:
            self._held[conversation_id] = steer
            return True
        taken = [super(SwapsSteers, self).inject(instance_name, conversation_id, each) for each in (steer, held)]
        return all(taken)


class LosesResults(Sessions):
    """Has a provider that tells the model nothing of what its tools gave."""

    async def _new_session(self, key: Key) -> AmplifierSession:
        session = await super()._new_session(key)

        async def put_between(_event: str, _data: dict[str, Any]) -> HookResult:
            model = session.coordinator.get("providers", "model")
            session.coordinator.mount("providers", _Forgetful(model), name="model")
            return HookResult()

        for event in (events.SESSION_START, events.SESSION_RESUME):
            session.coordinator.hooks.register(event, put_between)
        return session


class _Forgetful:
    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        kept = [message for message in request.messages if message.role != "tool"]
        answer: ChatResponse = await self._model.complete(request.model_copy(update={"messages": kept}), **options)
        return answer


class LeavesATaskBehind(Sessions):
    """Ends, and something goes on."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        self._left = asyncio.create_task(asyncio.sleep(1000), name="what is left")


class NeverAnswers(Sessions):
    """Hangs where it is to begin."""

    async def execute(self, *_: Any, **__: Any) -> str:
        await asyncio.get_running_loop().create_future()
        return ""
