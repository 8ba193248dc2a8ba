"""Scenarios for providers: calls against the catching server, which answers, refuses or delays them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.conversion import foreign, is_foreign, to_local, to_local_error
from orchestrator_interactive.kernel.contracts.errors import LLMError
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
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.validation.catching_server import ANSWER_SIGNATURE
from orchestrator_interactive.validation.runner import (
    CallResult,
    NotCheckedError,
    ToleratedError,
    called,
    cancel_in_time,
    kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.validation.catching_server import CatchingServer, Caught
    from orchestrator_interactive.validation.runner import Validator
    from orchestrator_interactive.validation.sandbox import Sandboxes

SIGNATURE = "c2lnbmF0dXJlT2ZUaGVUaGlua2luZw"
CALLS = ("toolu_first17", "toolu_second18")
RESULTS = ("The first file holds apples.", "The second file holds pears.")
PROMPTS = ("What do both files hold?", "And what grows on trees?")
SYSTEM = "You count fruit."
# Texts that the body of a provider's request must contain, by description.
_SENT: Mapping[str, tuple[str, ...]] = {
    "the text of the user": PROMPTS,
    "the system message": (SYSTEM,),
    "the text of a tool's result": RESULTS,
}
_PARSED_CALLS = (
    ToolCall(id="call_1", name="read_file", arguments={"path": "a.txt", "lines": [1, 2]}),
    ToolCall(id="call_2", name="list_files", arguments={}),
)
_UNKNOWN_SERVICE = NotCheckedError(
    "It calls a service whose response format the mock server does not know.",
    "Test it against recorded responses of the service.",
)


@dataclass(frozen=True, slots=True)
class Trials:
    """The calls of a provider.

    Args:
        models: outcome of `list_models`.
        asked: outcome of a call of `complete`.
        refused: outcome of a call that the service refused; `None` if the provider calls no service.
        cancelled: outcome of a call that was cancelled while the service delayed it; `None` if no request arrived.
        knows_models: whether the mock server knew all requests of `list_models`.
        caught: requests of `complete` at the mock server.
        changed: fields of the request that `complete` changed.
    """

    models: CallResult
    asked: CallResult
    refused: CallResult | None
    cancelled: CallResult | None
    knows_models: bool
    caught: tuple[Caught, ...]
    changed: tuple[str, ...]


async def check_provider(validator: Validator, sandboxes: Sandboxes, server: CatchingServer) -> None:
    """Call each provider of the module against the mock server, then check the rules."""
    async with sandboxes.open() as sandbox:
        for mounted in sandbox.all("provider"):
            provider = mounted.instance
            trials = await _try(validator, provider, server)
            validator.check("identifies_itself", _identity_problems(provider))
            validator.check("reports_limits", _unknown_limits(provider))
            validator.check("lists_its_models", _model_problems(trials))
            validator.check("parses_calls", _unparsed_calls(provider))
            validator.check("parsing_changes_nothing", _changed_by_parsing(provider))
            for rule in (answers, reports_usage, keeps_thinking):
                validator.check(rule.__name__, rule(trials))
            validator.check(
                "leaves_the_request", [f"After the call its '{name}' is changed." for name in trials.changed]
            )
            for rule in (sends_the_signature, sends_the_conversation, raises_llm_errors, honours_cancellation):
                validator.check(rule.__name__, rule(trials))


async def _try(validator: Validator, provider: Any, server: CatchingServer) -> Trials:
    server.set_mode("answer")
    start = len(server.caught)
    models = await validator.perform("list_models()", called(provider.list_models))
    of_models = server.caught[start:]
    request = _native(provider, _conversation())
    before, start = request.model_dump(), len(server.caught)
    asked = await validator.perform("complete()", called(partial(provider.complete, request)))
    after, caught = request.model_dump(), tuple(server.caught[start:])
    refused = cancelled = None
    if caught:
        server.set_mode("refuse")
        call = called(partial(provider.complete, _native(provider, _conversation())))
        refused = await validator.perform("complete(), refused by the service", call)
        server.set_mode("delay")
        ended = await validator.perform("complete(), cancelled", _cancel(validator, provider, server))
        cancelled = ended.value if not ended.problem else ended
        server.set_mode("refuse")
    return Trials(
        models,
        asked,
        refused,
        cancelled,
        knows_models=all(each.answer for each in of_models),
        caught=caught,
        changed=tuple(name for name, value in before.items() if after.get(name) != value),
    )


async def _cancel(validator: Validator, provider: Any, server: CatchingServer) -> CallResult | None:
    """Cancel a call of `complete` when its request has arrived; return how it ended, `None` if none arrived."""
    call = called(partial(provider.complete, _native(provider, _conversation())))
    task = asyncio.create_task(validator.caught(call))
    arrived = await server.wait_for_request(validator.limit_s / 2)
    if not await cancel_in_time(task):
        return CallResult(hung=True, problem="continues after its cancellation") if arrived else None
    return await validator.ending(task) if arrived else None


def _native(provider: Any, value: Any) -> Any:
    """Convert our value to the types that a provider uses."""
    try:
        return foreign(value) if is_foreign(provider.get_info()) else value
    except Exception:  # noqa: BLE001 - third-party code: a rule reports it
        return value


def _conversation() -> ChatRequest:
    """Return a request with signed thinking, two parallel calls, and their results."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    blocks = [
        ThinkingBlock(thinking="Two files, two calls.", signature=SIGNATURE),
        RedactedThinkingBlock(data="cmVkYWN0ZWRUaGlua2luZw"),
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


def _response(provider: Any, calls: tuple[ToolCall, ...]) -> Any:
    """Return a response with these calls, in its blocks and in `tool_calls`."""
    blocks = [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
    response = ChatResponse(content=[TextBlock(text="Let me see."), *blocks], tool_calls=list(calls) or None)
    return _native(provider, response)


def _identity_problems(provider: Any) -> Iterator[str]:
    info = to_local(provider.get_info())
    if not isinstance(info, ProviderInfo):
        yield f"It returns {kind(info)}, not a ProviderInfo."
        return
    yield from (f"Its {name} is blank." for name in ("id", "display_name") if not getattr(info, name).strip())


def _unknown_limits(provider: Any) -> Iterator[str]:
    defaults = getattr(provider.get_info(), "defaults", None) or {}
    for name in ("context_window", "max_output_tokens"):
        if not isinstance(defaults.get(name), int) or defaults[name] <= 0:
            yield f"Its defaults have no number of tokens for '{name}'."


def _model_problems(trials: Trials) -> Iterator[str]:
    models = trials.models
    if models.problem and not models.cancelled:
        raise ToleratedError(f"It {models.problem}.") if trials.knows_models else _UNKNOWN_SERVICE
    if models.cancelled:
        yield f"It {models.problem}."
    elif not isinstance(models.value, list):
        yield f"It returns {kind(models.value)}."
    elif wrong := [model for model in models.value if not isinstance(to_local(model), ModelInfo)]:
        yield f"There is {kind(wrong[0])} in the list."


def _unparsed_calls(provider: Any) -> Iterator[str]:
    for count in range(len(_PARSED_CALLS) + 1):
        got = provider.parse_tool_calls(_response(provider, _PARSED_CALLS[:count]))
        found = f"Of a response with {count} calls it makes"
        if not isinstance(got, list):
            yield f"{found} {kind(got)}, not a list."
        elif list(map(_fields, got)) != list(map(_fields, _PARSED_CALLS[:count])):
            yield f"{found} {list(map(_fields, got))}."


def _fields(call: Any) -> dict[str, Any]:
    return {name: getattr(call, name, None) for name in ("id", "name", "arguments")}


def _changed_by_parsing(provider: Any) -> Iterator[str]:
    response = _response(provider, _PARSED_CALLS)
    before = response.model_dump()
    provider.parse_tool_calls(response)
    if response.model_dump() != before:
        yield "The response is changed afterwards."


def _answer(trials: Trials) -> Any:
    """Return the result of `complete`, in our types.

    Raises:
        NotCheckedError: the call failed for lack of its service.
    """
    asked = trials.asked
    if not asked.problem:
        return to_local(asked.value)
    if trials.caught and trials.caught[-1].answer is None:
        raise _UNKNOWN_SERVICE
    error = to_local_error(asked.error) if isinstance(asked.error, Exception) else asked.error
    if asked.hung or asked.cancelled:
        fix = "Let the option `base_url` set its service's address, and let it answer sooner."
        raise NotCheckedError(f"It {asked.problem}.", "Find the code that cancels it." if asked.cancelled else fix)
    if not trials.caught and isinstance(error, LLMError | OSError):
        raise NotCheckedError(
            f"It {asked.problem}, and has called nothing at the option `base_url`.",
            "Pass its configuration with --config, and let the option `base_url` set its service's address.",
        )
    raise error or TypeError


def answers(trials: Trials) -> Iterator[str]:
    answer = _answer(trials)
    if not isinstance(answer, ChatResponse):
        yield f"It returns {kind(answer)}."
    elif not answer.content:
        yield "Its content is empty."


def reports_usage(trials: Trials) -> Iterator[str]:
    usage = getattr(_answer(trials), "usage", None)
    if usage is None:
        yield "The response has no usage."
        return
    counts = {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")}
    total = usage.input_tokens + usage.output_tokens
    if min(counts.values()) < 0:
        yield f"A number of tokens is negative: {counts}."
    elif usage.total_tokens != total:
        yield f"total_tokens is {usage.total_tokens}; input and output are {total}."


def keeps_thinking(trials: Trials) -> Iterator[str]:
    answer = _answer(trials)
    if not any(caught.answer and ANSWER_SIGNATURE.encode() in caught.answer for caught in trials.caught):
        raise NotCheckedError("Its service has not answered with thinking that is signed.", "None is needed.")
    if not any(getattr(block, "signature", None) == ANSWER_SIGNATURE for block in answer.content):
        yield "The signature of the thinking in the service's answer is not in the response."


def _sent(trials: Trials) -> str:
    """Return the body of the request at the mock server.

    Raises:
        NotCheckedError: no request arrived.
    """
    if trials.caught:
        # The largest is the model call; others may fetch a token or count tokens.
        return max((caught.body for caught in trials.caught), key=len).decode(errors="replace")
    if not trials.asked.problem:
        raise NotCheckedError("It answers without asking a service over HTTP.", "None is needed.")
    raise NotCheckedError(
        "No request has arrived at the server that the option `base_url` named.",
        "Let the option `base_url` set the address of its service, and give with --config what else it needs.",
    )


def sends_the_signature(trials: Trials) -> Iterator[str]:
    if SIGNATURE not in _sent(trials):
        yield "The signature of the thinking block is not in the request's body."


def sends_the_conversation(trials: Trials) -> Iterator[str]:
    sent = _sent(trials)
    yield from (f"The id {call} is not both at its call and at its result." for call in CALLS if sent.count(call) < 2)
    missing = (what for what, texts in _SENT.items() if not all(text in sent for text in texts))
    yield from (f"In the request's body {what} is missing." for what in missing)


def raises_llm_errors(trials: Trials) -> Iterator[str]:
    _sent(trials)
    refused = trials.refused or CallResult()
    if not (isinstance(refused.error, Exception) and isinstance(to_local_error(refused.error), LLMError)):
        yield f"After HTTP status 400 it {refused.problem or 'returns an answer'}."


def honours_cancellation(trials: Trials) -> Iterator[str]:
    _sent(trials)
    ended = trials.cancelled
    if ended is None:
        raise NotCheckedError("A second request has not reached its service.", "Let every complete() ask the service.")
    if ended.hung:
        yield "It continues after its cancellation."
    elif not ended.cancelled:
        how = f"{ended.problem} instead of" if ended.problem else "returns an answer instead of raising"
        yield f"Cancelled, it {how} CancelledError."
