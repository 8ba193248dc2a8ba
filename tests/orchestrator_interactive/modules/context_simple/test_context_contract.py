"""Context contract, for `context-simple`."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from agents import Recorder

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.models import ProviderInfo
from orchestrator_interactive.kernel.contracts.protocols import ContextManager
from orchestrator_interactive.modules.context_simple import SimpleContext, mount

FORMATS: dict[str, dict[str, Any]] = {
    "user": {"role": "user", "content": "User's input text"},
    "assistant": {"role": "assistant", "content": "Assistant's response"},
    "assistant with tool calls": {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_123", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.md"}'}}
        ],
    },
    "system": {"role": "system", "content": "System instructions"},
    "tool": {"role": "tool", "tool_call_id": "call_123", "content": "Tool output"},
}
SEQUENCE = [FORMATS["user"], FORMATS["assistant with tool calls"], FORMATS["tool"]]


async def a_context(**config: Any) -> SimpleContext:
    coordinator = AmplifierSession({"session": {"orchestrator": "o", "context": "c"}}).coordinator
    return await mount(coordinator, config)


@pytest.fixture
async def context() -> SimpleContext:
    return await a_context()


def messages(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"Message {number}"} for number in range(count)]


class ProviderOf:
    """As much of a provider as a context looks at."""

    def __init__(self, **defaults: int) -> None:
        self._defaults = defaults

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="p", display_name="P", defaults=self._defaults)


class TestProtocolDefinition:
    def test_it_is_a_context_manager(self, context: SimpleContext) -> None:
        assert isinstance(context, ContextManager)

    def test_get_messages_for_request_takes_budget_and_provider(self, context: SimpleContext) -> None:
        parameters = inspect.signature(context.get_messages_for_request).parameters
        assert {name: parameter.default for name, parameter in parameters.items()} == {
            "token_budget": None,
            "provider": None,
        }


class TestMessageFormat:
    @pytest.mark.parametrize("name", FORMATS)
    async def test_every_format_comes_back_as_it_was_added(self, context: SimpleContext, name: str) -> None:
        await context.add_message(FORMATS[name])
        assert await context.get_messages() == [FORMATS[name]]


class TestMountFunction:
    async def test_it_mounts_and_returns_the_instance(self, coordinator: ModuleCoordinator) -> None:
        context = await mount(coordinator, {})
        assert coordinator.get("context") is context

    async def test_the_contracts_way_to_mount_works(self, coordinator: ModuleCoordinator) -> None:
        context = await a_context()
        await coordinator.mount("session", context, name="context")
        assert coordinator.get("context") is context

    @pytest.mark.parametrize(
        "config", [{"max_tokens": 0}, {"max_tokens": "many"}, {"compaction_threshold": 2}, {"max_token": 1}], ids=str
    )
    async def test_a_wrong_option_is_named(self, coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=f"'{next(iter(config))}'"):
            await mount(coordinator, config)


class TestAddMessage:
    @pytest.mark.parametrize("message", [{"content": "x"}, {"role": "", "content": "x"}, {}], ids=str)
    async def test_a_message_without_a_role_is_refused(self, context: SimpleContext, message: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="'role'"):
            await context.add_message(message)
        assert await context.get_messages() == []


class TestGetMessagesForRequest:
    async def test_what_fits_comes_back_whole_and_in_order(self, context: SimpleContext) -> None:
        await context.set_messages(messages(10))
        assert await context.get_messages_for_request() == messages(10)

    async def test_what_does_not_fit_is_compacted_internally(self, context: SimpleContext) -> None:
        await context.set_messages(messages(200))
        assert len(await context.get_messages_for_request(token_budget=500)) < 200

    async def test_the_list_is_a_copy(self, context: SimpleContext) -> None:
        await context.set_messages(messages(3))
        (await context.get_messages_for_request()).clear()
        assert len(await context.get_messages_for_request()) == 3

    async def test_an_explicit_budget_goes_before_the_providers(self, context: SimpleContext) -> None:
        await context.set_messages(messages(200))
        provider = ProviderOf(context_window=200_000, max_output_tokens=8_000)
        assert len(await context.get_messages_for_request(token_budget=500, provider=provider)) < 200

    @pytest.mark.parametrize(("window", "is_whole"), [(200_000, True), (2_500, False)])
    async def test_the_providers_window_makes_the_budget(self, window: int, *, is_whole: bool) -> None:
        context = await a_context(max_tokens=50_000)
        await context.set_messages(messages(200))
        provider = ProviderOf(context_window=window, max_output_tokens=1_000)
        assert (len(await context.get_messages_for_request(provider=provider)) == 200) is is_whole

    async def test_a_safety_margin_is_kept(self, context: SimpleContext) -> None:
        """budget = context_window - max_output_tokens - safety_margin: nothing is left of a window this small."""
        await context.set_messages(messages(10))
        provider = ProviderOf(context_window=2_000, max_output_tokens=1_000)
        assert len(await context.get_messages_for_request(provider=provider)) < 10

    @pytest.mark.parametrize("defaults", [{}, {"context_window": 200_000}, {"max_output_tokens": 1_000}], ids=str)
    async def test_a_provider_that_does_not_say_leaves_it_to_the_configuration(self, defaults: dict[str, int]) -> None:
        context = await a_context(max_tokens=500)
        await context.set_messages(messages(200))
        assert len(await context.get_messages_for_request(provider=ProviderOf(**defaults))) < 200

    async def test_a_provider_that_cannot_say_leaves_it_to_the_configuration(self) -> None:
        class Offline:
            def get_info(self) -> ProviderInfo:
                raise ConnectionError("offline")

        context = await a_context(max_tokens=500)
        await context.set_messages(messages(200))
        assert len(await context.get_messages_for_request(provider=Offline())) < 200


class TestGetMessages:
    async def test_it_is_the_full_history_whatever_was_compacted(self, context: SimpleContext) -> None:
        await context.set_messages(messages(200))
        await context.get_messages_for_request(token_budget=500)
        assert await context.get_messages() == messages(200)

    async def test_the_list_is_a_copy(self, context: SimpleContext) -> None:
        await context.set_messages(messages(3))
        (await context.get_messages()).clear()
        assert len(await context.get_messages()) == 3


class TestSetMessagesAndClear:
    async def test_set_messages_replaces_the_history(self, context: SimpleContext) -> None:
        await context.add_message(FORMATS["user"])
        await context.set_messages(messages(2))
        assert await context.get_messages() == messages(2)

    async def test_clear_forgets_everything(self, context: SimpleContext) -> None:
        await context.set_messages(messages(200))
        await context.clear()
        assert await context.get_messages() == await context.get_messages_for_request() == []


class TestNonDestructiveCompaction:
    async def test_the_stored_history_is_never_changed(self, context: SimpleContext) -> None:
        await context.set_messages(messages(200))
        for budget in (500, 300, 900):
            await context.get_messages_for_request(token_budget=budget)
            assert await context.get_messages() == messages(200)

    async def test_a_larger_budget_shows_everything_again(self, context: SimpleContext) -> None:
        await context.set_messages(messages(200))
        await context.get_messages_for_request(token_budget=500)
        assert await context.get_messages_for_request(token_budget=100_000) == messages(200)

    async def test_the_same_inputs_give_the_same_view(self) -> None:
        views = []
        for _ in range(2):
            context = await a_context()
            await context.set_messages(messages(200))
            views.append(await context.get_messages_for_request(token_budget=500))
        assert views[0] == views[1]


class TestToolPairPreservation:
    @pytest.mark.parametrize("budget", [60, 100, 200, 400, 800])
    async def test_a_call_and_its_results_stay_together(self, context: SimpleContext, budget: int) -> None:
        for number in range(30):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            await context.add_message({"role": "assistant", "content": None, "tool_calls": [call]})
            await context.add_message({"role": "tool", "tool_call_id": f"c{number}", "content": "content " * 10})
        view = await context.get_messages_for_request(token_budget=budget)
        called = [call["id"] for row in view for call in row.get("tool_calls", ())]
        assert called == [row["tool_call_id"] for row in view if row["role"] == "tool"]
        assert called


class TestConfiguration:
    async def test_the_threshold_says_when_to_compact(self) -> None:
        early, late = await a_context(compaction_threshold=0.1), await a_context(compaction_threshold=1.0)
        for context in (early, late):
            await context.set_messages(messages(100))
        assert len(await early.get_messages_for_request(token_budget=3_000)) < 100
        assert len(await late.get_messages_for_request(token_budget=3_000)) == 100

    async def test_the_mount_plan_configures_it(self, shipped_plan: dict[str, Any]) -> None:
        plan = {**shipped_plan, "context": {"config": {"system_prompt": "Be kind."}}}
        async with AmplifierSession(plan) as session:
            rows = await session.coordinator.get("context").get_messages_for_request()
        assert rows == [{"role": "system", "content": "Be kind."}]


class TestObservability:
    async def test_the_compaction_events_are_contributed(self, coordinator: ModuleCoordinator) -> None:
        await mount(coordinator, {})
        contributed = await coordinator.collect_contributions("observability.events")
        assert contributed == [["context:pre_compact", "context:post_compact"]]

    async def test_they_carry_the_counts_before_and_after(self, coordinator: ModuleCoordinator) -> None:
        recorder = Recorder().listen(coordinator.hooks, "context:pre_compact", "context:post_compact")
        context = await mount(coordinator, {})
        await context.set_messages(messages(200))
        view = await context.get_messages_for_request(token_budget=500)
        assert recorder.names() == ["context:pre_compact", "context:post_compact"]
        before, after = (data for _, data in recorder.seen)
        assert (before["message_count"], after["message_count"]) == (200, len(view))
        assert before["token_count"] > after["token_count"] > 0


class TestValidationChecklist:
    """The rows that no other class shows."""

    async def test_system_messages_are_preserved(self, context: SimpleContext) -> None:
        await context.set_messages([FORMATS["system"], *messages(200)])
        assert FORMATS["system"] in await context.get_messages_for_request(token_budget=500)

    async def test_messages_are_returned_in_conversation_order(self, context: SimpleContext) -> None:
        await context.set_messages(messages(200))
        kept = [row for row in await context.get_messages_for_request(token_budget=500) if row in messages(200)]
        assert kept == messages(200)[-len(kept) :]

    async def test_it_is_safe_for_concurrent_access(self, context: SimpleContext) -> None:
        """Concurrent is: many tasks of one event loop."""
        adding = [context.add_message(message) for message in messages(50)]
        reading = [context.get_messages_for_request(token_budget=200) for _ in range(50)]
        await asyncio.gather(*(task for pair in zip(adding, reading, strict=True) for task in pair))
        assert await context.get_messages() == messages(50)


class TestTesting:
    """The contract's own tests, with our context in the place of theirs."""

    async def test_context_manager(self) -> None:
        context = await a_context(max_tokens=1000)
        await context.add_message({"role": "user", "content": "Hello"})
        await context.add_message({"role": "assistant", "content": "Hi there!"})
        rows = await context.get_messages_for_request()
        assert len(rows) == 2
        assert rows[0]["role"] == "user"
        assert len(await context.get_messages()) == 2
        await context.clear()
        assert len(await context.get_messages()) == 0

    async def test_compaction_preserves_tool_pairs(self) -> None:
        context = await a_context(max_tokens=100, compaction_threshold=0.5)
        for row in [*SEQUENCE, *messages(50)]:
            await context.add_message(row)
        tool_use_ids, tool_result_ids = set(), set()
        for row in await context.get_messages_for_request():
            tool_use_ids |= {call["id"] for call in row.get("tool_calls") or ()}
            if row.get("role") == "tool":
                tool_result_ids.add(row.get("tool_call_id"))
        assert tool_result_ids.issubset(tool_use_ids), "Orphaned tool results found!"

    async def test_session_resume(self) -> None:
        context = await a_context(max_tokens=1000)
        saved_messages = [
            {"role": "user", "content": "Previous conversation"},
            {"role": "assistant", "content": "Previous response"},
        ]
        await context.set_messages(saved_messages)
        rows = await context.get_messages()
        assert len(rows) == 2
        assert rows[0]["content"] == "Previous conversation"
