"""Handlers and hook results of every kind, how several results are merged, and cancellation."""

import asyncio
import functools
from typing import Any

import pytest
from agents import soon
from pydantic import BaseModel
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import HookRegistry, HookResult

DENY = HookResult(action="deny", reason="no")
INJECT = HookResult(action="inject_context")


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


def _answering(hooks: HookRegistry, *answers: Any) -> HookRegistry:
    """Handlers named 0, 1, 2, …, each with its answer."""
    for number, answer in enumerate(answers):

        async def handler(_event: str, _data: dict[str, Any], answer: Any = answer) -> Any:
            return answer

        hooks.register("e", handler, name=str(number))
    return hooks


class _NoMore(HookResult):
    """A result of a later version, with an action that is not known here."""

    action: str = "quarantine"


class _Lookalike:
    """Calls itself amplifier_core's, and is not."""

    action = "deny"


class _LookalikeModel(BaseModel):
    action: str = "veto"


for _lookalike in (_Lookalike, _LookalikeModel):
    _lookalike.__name__, _lookalike.__module__ = "HookResult", "amplifier_core.models"


INVALID = {
    "an unknown action": HookResult.model_construct(action="block"),
    "no action": HookResult().model_copy(update={"action": None}),
    "an action of a later version": _NoMore(),
    "data in a list": HookResult(action="modify").model_copy(update={"data": ["not", "a", "dict"]}),
    "a number to inject": INJECT.model_copy(update={"context_injection": 5}),
    "an unknown role": INJECT.model_copy(update={"context_injection": "x", "context_injection_role": "tool"}),
    "injections of text": INJECT.model_copy(update={"context_injections": ["text"]}),
    "a number to show": HookResult(user_message="x").model_copy(update={"user_message": 5}),
    "the class": HookResult,
    "a lookalike": _Lookalike(),
    "a model that looks alike": _LookalikeModel(),
}


@pytest.mark.parametrize("invalid", INVALID.values(), ids=INVALID)
async def test_an_invalid_result_is_logged_and_leaves_the_others_alone(hooks: HookRegistry, invalid: Any) -> None:
    with capture_logs() as logs:
        assert (await _answering(hooks, invalid).emit("e", {})).action == "continue"
    assert [entry["hook"] for entry in logs if entry["event"] in {"hook.result_invalid", "hook.failed"}] == ["0"]
    assert (await _answering(hooks, DENY).emit("e", {})).reason == "no"


@pytest.mark.parametrize("text", [" ", "\n\n", "\t"], ids=repr)
async def test_a_blank_injection_is_dropped(hooks: HookRegistry, text: str) -> None:
    result = await _answering(hooks, INJECT.model_copy(update={"context_injection": text})).emit("e", {})
    assert (result.action, result.injections()) == ("continue", [])


async def test_every_kind_of_callable_is_a_handler(hooks: HookRegistry) -> None:
    def says(word: str) -> HookResult:
        return HookResult(action="modify", data={word: True})

    class Says:
        async def __call__(self, _event: str, _data: dict[str, Any]) -> HookResult:
            return says("object")

        async def method(self, _event: str, _data: dict[str, Any]) -> HookResult:
            return says("method")

    async def with_more(word: str, _event: str, _data: dict[str, Any]) -> HookResult:
        return says(word)

    def with_future(_event: str, _data: dict[str, Any]) -> asyncio.Future[HookResult]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(says("future"))
        return future

    partial = functools.partial(with_more, "partial")
    for handler in (Says(), Says().method, partial, with_future, lambda _event, _data: says("sync")):
        hooks.register("e", handler)
    assert set((await hooks.emit("e", {})).data or {}) == {"object", "method", "partial", "future", "sync"}


async def test_a_handler_that_is_registered_during_an_event_waits_for_the_next(hooks: HookRegistry) -> None:
    called: list[str] = []

    async def late(_event: str, _data: dict[str, Any]) -> None:
        called.append("late")

    async def registers(_event: str, _data: dict[str, Any]) -> None:
        hooks.register("e", late, priority=9)

    end = hooks.register("e", registers)
    await hooks.emit("e", {})
    assert called == []
    end()
    await hooks.emit("e", {})
    assert called == ["late"]


async def test_a_handler_that_is_unregistered_during_an_event_is_not_called(hooks: HookRegistry) -> None:
    async def ends_the_other(_event: str, _data: dict[str, Any]) -> None:
        end()

    hooks.register("e", ends_the_other)
    end = hooks.register("e", lambda _event, _data: DENY)
    assert (await hooks.emit("e", {})).action == "continue"


async def test_a_handler_may_emit_its_own_event(hooks: HookRegistry) -> None:
    depths: list[int] = []

    async def goes_deeper(_event: str, data: dict[str, Any]) -> HookResult:
        depths.append(data["depth"])
        if data["depth"] < 3:
            await hooks.emit("e", {"depth": data["depth"] + 1})
        return HookResult(action="modify", data={"depth": data["depth"] * 10})

    hooks.register("e", goes_deeper)
    assert (await hooks.emit("e", {"depth": 1})).data == {"depth": 10}
    assert depths == [1, 2, 3]


async def test_events_at_the_same_time_do_not_mix(hooks: HookRegistry) -> None:
    async def counts(_event: str, data: dict[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        return HookResult(action="modify", data={"n": data["n"] + 1})

    hooks.register("e", counts)
    hooks.register("e", counts)
    results = await asyncio.gather(*(hooks.emit("e", {"n": n}) for n in (0, 10, 20)))
    assert [result.data for result in results] == [{"n": 2}, {"n": 12}, {"n": 22}]


async def test_two_questions_become_one_with_the_stricter_options(hooks: HookRegistry) -> None:
    one = HookResult(
        action="ask_user",
        approval_prompt="Network?",
        approval_options=["Allow always", "Deny"],
        approval_timeout=9,
        approval_default="allow",
    )
    other = HookResult(action="ask_user", approval_prompt="Delete?", approval_timeout=60)
    result = await _answering(hooks, one, other).emit("e", {})
    assert result.approval_prompt == "Network?\nDelete?"
    assert (result.approval_options, result.approval_timeout, result.approval_default) == (None, 9, "deny")


@pytest.mark.parametrize("question_first", [True, False])
async def test_an_injection_is_kept_beside_a_question(hooks: HookRegistry, *, question_first: bool) -> None:
    answers = [INJECT.model_copy(update={"context_injection": "3 issues"}), HookResult(action="ask_user")]
    result = await _answering(hooks, *sorted(answers, key=lambda a: a.action, reverse=not question_first)).emit("e", {})
    assert result.action == "ask_user"
    assert [(i.content, i.event) for i in result.injections()] == [("3 issues", "e")]


async def test_a_denial_drops_the_injections(hooks: HookRegistry) -> None:
    result = await _answering(hooks, INJECT.model_copy(update={"context_injection": "3 issues"}), DENY).emit("e", {})
    assert (result.action, result.injections()) == ("deny", [])


@pytest.mark.parametrize("stronger_first", [True, False])
async def test_messages_for_the_user_are_joined_with_the_more_severe_level(
    hooks: HookRegistry, *, stronger_first: bool
) -> None:
    answers = [
        HookResult(user_message="The disk is full.", user_message_level="error"),
        HookResult(action="modify", data={}, user_message="Tidied up."),
    ]
    if stronger_first:
        answers.reverse()
    result = await _answering(hooks, *answers).emit("e", {})
    assert result.user_message == "\n".join(answer.user_message or "" for answer in answers)
    assert result.user_message_level == "error"


async def test_a_weaker_result_keeps_its_message_its_source_and_its_suppression(hooks: HookRegistry) -> None:
    quiet = HookResult(user_message="look", user_message_level="warning", suppress_output=True)
    result = await _answering(hooks, quiet, HookResult(action="ask_user", approval_prompt="May it?")).emit("e", {})
    assert (result.user_message, result.user_message_level, result.user_message_source) == ("look", "warning", "0")
    assert result.suppress_output


async def test_in_a_collection_every_handler_gets_the_data_as_emitted(hooks: HookRegistry) -> None:
    seen: list[dict[str, Any]] = []

    async def changes(_event: str, data: dict[str, Any]) -> None:
        seen.append(dict(data))
        data["a"] = 2

    hooks.set_default_fields(session_id="s")
    hooks.register("e", changes)
    hooks.register("e", changes)
    data = {"a": 1}
    await hooks.emit_and_collect("e", data)
    assert seen == [{"session_id": "s", "a": 1}] * 2
    assert data == {"a": 1}


@pytest.mark.parametrize("data", ["text", 5, [1]], ids=repr)
async def test_event_data_that_is_no_dictionary_is_refused(hooks: HookRegistry, data: Any) -> None:
    with pytest.raises(TypeError, match="data"):
        await _answering(hooks, None).emit("e", data)


async def _swallows_its_cancellation(reached: asyncio.Event) -> HookResult:
    reached.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return HookResult()
    return HookResult(action="deny")


async def test_a_handler_that_swallows_a_cancellation_does_not_hide_it_from_the_emitter() -> None:
    hooks, reached, went_on = HookRegistry(), asyncio.Event(), []
    hooks.register("e", lambda _event, _data: _swallows_its_cancellation(reached))

    async def emitter() -> None:
        await hooks.emit("e", {})
        went_on.append(True)

    task = asyncio.create_task(emitter())
    await soon(reached.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert went_on == []


async def test_a_cancellation_before_the_event_is_no_failure_of_the_handler(hooks: HookRegistry) -> None:
    hooks.register("e", lambda _event, _data: asyncio.sleep(0))

    async def emitter() -> None:
        task = asyncio.current_task()
        assert task
        task.cancel()
        await hooks.emit("e", {})

    with pytest.raises(asyncio.CancelledError):
        await soon(asyncio.create_task(emitter()))


async def test_a_handler_that_times_out_cleans_up_and_leaves_the_emitter_uncancelled() -> None:
    hooks, cleaned = HookRegistry(timeout_s=0.01), []

    async def hangs(_event: str, _data: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    hooks.register("e", hangs)

    async def emitter() -> int:
        await hooks.emit("e", {})
        task = asyncio.current_task()
        return task.cancelling() if task else -1

    assert await soon(asyncio.create_task(emitter())) == 0
    assert cleaned == ["up"]


@pytest.mark.parametrize("steps", [1, 2], ids=["right before", "right after"])
async def test_a_cancellation_at_the_instant_of_a_timeout_is_not_lost(steps: int) -> None:
    hooks = HookRegistry(timeout_s=0)
    hooks.register("e", lambda _event, _data: asyncio.Event().wait())
    task: asyncio.Task[Any] = asyncio.create_task(hooks.emit("e", {}))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
