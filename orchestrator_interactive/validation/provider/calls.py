"""Calls of providers for the validation, and their outcomes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.conversion import foreign, is_foreign, to_local
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
from orchestrator_interactive.validation.runner import CANCEL_GRACE_S, Cancelled, Hung, Raised, Returned, cancel_in_time
from orchestrator_interactive.validation.sandbox import called

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.provider.catching_server import CatchingServer, Caught
    from orchestrator_interactive.validation.runner import Ending, Validator
    from orchestrator_interactive.validation.sandbox import Mounted

SIGNATURE = "c2lnbmF0dXJlT2ZUaGVUaGlua2luZw"
REDACTED = "cmVkYWN0ZWRUaGlua2luZw"
CALLS = ("toolu_first17", "toolu_second18")
RESULTS = ("The first file holds apples.", "The second file holds pears.")
PROMPTS = ("What do both files hold?", "And what grows on trees?")
SYSTEM = "You count fruit."

# Texts that the body of a provider's request must contain, by description.
SENT: Mapping[str, tuple[str, ...]] = {
    "the text of the user": PROMPTS,
    "the system message": (SYSTEM,),
    "the text of a tool's result": RESULTS,
}


def conversation() -> ChatRequest:
    """Return a request with signed thinking, two parallel calls, and their results."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    blocks = [
        ThinkingBlock(thinking="Two files, two calls.", signature=SIGNATURE),
        RedactedThinkingBlock(data=REDACTED),
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
    tool = ToolSpec(name="read_file", description="Read a file.", parameters=schema)
    return ChatRequest(messages=messages, tools=[tool], max_output_tokens=1000)


def response_with(*calls: ToolCall) -> ChatResponse:
    """Return a response with these calls, in its blocks and in `tool_calls`."""
    blocks = [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
    return ChatResponse(content=[TextBlock(text="Let me see."), *blocks], tool_calls=list(calls) or None)


@dataclass(frozen=True, slots=True)
class ProviderReply:
    """One call of `complete`.

    Args:
        before, after: the request before and after the call, as dumped by pydantic.
        caught: requests that arrived at the mock server during the call.
    """

    ended: Ending
    before: dict[str, Any]
    after: dict[str, Any]
    caught: tuple[Caught, ...] = ()


@dataclass(frozen=True, slots=True)
class Probed:
    """A provider, and the outcomes of its calls.

    Args:
        models: outcome of `list_models`.
        models_unanswered: whether it called its service and the mock server did not know the request's format.
        asked: a call of `complete`.
        refused: outcome of a call that the service refused; `None` if the provider calls no service.
        held: outcome of a call that was cancelled while the service delayed its response; `None` if none reached it.
    """

    location: ModuleLocation
    provider: Any
    models: Ending
    models_unanswered: bool
    asked: ProviderReply
    refused: Ending | None = None
    held: Ending | None = None

    @property
    def unanswered(self) -> bool:
        """Whether `complete` called its service and the mock server did not know the request's format."""
        return bool(self.asked.caught) and self.asked.caught[-1].answer is None


class Prober:
    """Call providers against a mock server."""

    def __init__(self, validator: Validator, server: CatchingServer) -> None:
        self._validator = validator
        self._server = server

    async def probe(self, mounted: Mounted) -> Probed:
        """Call `list_models` and `complete`; if the latter reaches the server, also a refused and a cancelled call."""
        provider, location = mounted.instance, self._validator.location
        self._server.set_mode("answers")
        before = len(self._server.caught)
        models = await self._validator.perform("list_models()", called(provider.list_models))
        unanswered = any(caught.answer is None for caught in self._server.caught[before:])
        asked = await self._ask(provider)
        if not asked.caught:
            return Probed(location, provider, models, unanswered, asked)
        refused = await self._refuse(provider)
        return Probed(location, provider, models, unanswered, asked, refused, await self._cancel_while_held(provider))

    async def _ask(self, provider: Any) -> ProviderReply:
        request = native(provider, conversation())
        before, arrived = request.model_dump(), len(self._server.caught)
        ended = await self._validator.perform("complete()", called(partial(provider.complete, request)))
        if isinstance(ended, Returned):
            ended = Returned(to_local(ended.value))
        return ProviderReply(ended, before, request.model_dump(), self._server.caught[arrived:])

    async def _refuse(self, provider: Any) -> Ending:
        self._server.set_mode("refuses")
        call = partial(provider.complete, native(provider, conversation()))
        return await self._validator.perform("complete(), refused by the service", called(call))

    async def _cancel_while_held(self, provider: Any) -> Ending | None:
        self._server.set_mode("waits")
        try:
            done = await self._validator.perform("complete(), cancelled", self._cancel(provider))
        finally:
            self._server.set_mode("refuses")
        return done.value if isinstance(done, Returned) else done

    async def _cancel(self, provider: Any) -> Ending | None:
        call = asyncio.create_task(called(partial(provider.complete, native(provider, conversation()))))
        arrived = await self._server.wait_for_request(self._validator.limit_s / 2)
        stopped = await cancel_in_time(call)
        if not arrived:
            return None
        if not stopped:
            return Hung(CANCEL_GRACE_S, stopped=False)
        if call.cancelled():
            return Cancelled()
        error = call.exception()
        return Raised(error) if error else Returned(call.result())


def native(provider: Any, value: Any) -> Any:
    """Convert our value to the types that a provider uses."""
    try:
        speaks_ours = not is_foreign(provider.get_info())
    except Exception:  # noqa: BLE001 - third-party code: a rule reports it
        speaks_ours = True
    return value if speaks_ours else foreign(value)
