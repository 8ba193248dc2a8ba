"""Coordinator API: register_contributor, collect_contributions."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator_interactive.kernel import ModuleCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable


async def says_two() -> str:
    return "two"


class TestRegisterContributor:
    def test_its_signature(self) -> None:
        parameters = inspect.signature(ModuleCoordinator.register_contributor).parameters
        assert list(parameters) == ["self", "channel", "name", "callback"]

    async def test_a_channel_is_created_and_the_contributor_appended(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.register_contributor("a.channel", "module", lambda: 1) is None
        assert await coordinator.collect_contributions("a.channel") == [1]

    async def test_the_callback_is_called_when_collected_only(self, coordinator: ModuleCoordinator) -> None:
        calls: list[int] = []
        coordinator.register_contributor("c", "module", lambda: calls.append(1))
        assert calls == []
        await coordinator.collect_contributions("c")
        assert calls == [1]

    async def test_the_same_name_may_register_several_times(self, coordinator: ModuleCoordinator) -> None:
        for number in range(3):
            coordinator.register_contributor("c", "same", lambda number=number: number)
        assert await coordinator.collect_contributions("c") == [0, 1, 2]

    async def test_channels_are_apart(self, coordinator: ModuleCoordinator) -> None:
        coordinator.register_contributor("one", "module", lambda: 1)
        coordinator.register_contributor("two", "module", lambda: 2)
        assert await coordinator.collect_contributions("one") == [1]

    async def test_usage_example(self, coordinator: ModuleCoordinator) -> None:
        spawn_agent, list_agents, messages = object(), object(), []

        async def get_agent_capabilities() -> dict[str, Any]:
            return {"spawn": spawn_agent, "list": list_agents}

        events = ["filesystem:read", "filesystem:write", "filesystem:delete"]
        coordinator.register_contributor("observability.events", "tool-filesystem", lambda: events)
        coordinator.register_contributor("capabilities", "agent-manager", get_agent_capabilities)
        coordinator.register_contributor(
            "session.metadata", "context-manager", lambda: {"message_count": len(messages)} if messages else None
        )
        assert events in await coordinator.collect_contributions("observability.events")
        assert await coordinator.collect_contributions("capabilities") == [{"spawn": spawn_agent, "list": list_agents}]
        assert await coordinator.collect_contributions("session.metadata") == []
        messages.append("hello")
        assert await coordinator.collect_contributions("session.metadata") == [{"message_count": 1}]


class TestCollectContributions:
    async def test_a_channel_without_contributors_is_an_empty_list(self, coordinator: ModuleCoordinator) -> None:
        assert await coordinator.collect_contributions("silence") == []

    @pytest.mark.parametrize(
        "callback",
        [lambda: "two", says_two, lambda: says_two(), functools.partial(says_two)],  # noqa: PLW0108 - what is to be told apart
        ids=["sync", "async", "returns a coroutine", "partial"],
    )
    async def test_every_kind_of_callback_works_in_order(
        self, coordinator: ModuleCoordinator, callback: Callable[[], Any]
    ) -> None:
        for contribution in (lambda: "one", callback, lambda: "three"):
            coordinator.register_contributor("c", "module", contribution)
        assert await coordinator.collect_contributions("c") == ["one", "two", "three"]

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_a_failure_is_logged_with_name_and_channel_and_left_out(
        self, coordinator: ModuleCoordinator, logs, *, is_async: bool
    ) -> None:
        def fails() -> Any:
            raise RuntimeError

        async def fails_later() -> Any:
            raise RuntimeError

        coordinator.register_contributor("a.channel", "the broken one", fails_later if is_async else fails)
        coordinator.register_contributor("a.channel", "module", lambda: "fine")
        assert await coordinator.collect_contributions("a.channel") == ["fine"]
        assert logs.tell("error", "contributor", "the broken one", "a.channel")

    async def test_none_is_left_out_and_other_empty_values_are_not(self, coordinator: ModuleCoordinator) -> None:
        for value in (None, [], 0, "", {}):
            coordinator.register_contributor("c", "module", lambda value=value: value)
        assert await coordinator.collect_contributions("c") == [[], 0, "", {}]

    async def test_usage_example(self, coordinator: ModuleCoordinator) -> None:
        read_write, spawn_stop = ["filesystem:read", "filesystem:write"], ["agent:spawn", "agent:stop"]
        coordinator.register_contributor("observability.events", "tool-filesystem", lambda: read_write)
        coordinator.register_contributor("observability.events", "agents", lambda: spawn_stop)
        coordinator.register_contributor("capabilities", "one", lambda: {"a": 1})
        coordinator.register_contributor("capabilities", "two", lambda: {"b": 2})
        all_events: list[str] = []
        for contribution in await coordinator.collect_contributions("observability.events"):
            if isinstance(contribution, list):
                all_events.extend(contribution)
        assert all_events[-4:] == ["filesystem:read", "filesystem:write", "agent:spawn", "agent:stop"]
        merged_caps: dict[str, int] = {}
        for cap_dict in await coordinator.collect_contributions("capabilities"):
            if isinstance(cap_dict, dict):
                merged_caps.update(cap_dict)
        assert merged_caps == {"a": 1, "b": 2}
