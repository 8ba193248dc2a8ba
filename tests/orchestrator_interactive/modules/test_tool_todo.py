from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.protocols import Tool
from orchestrator_interactive.modules import tool_todo


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator


@pytest.fixture
async def todo(coordinator: ModuleCoordinator) -> Any:
    return await tool_todo.mount(coordinator, {})


def test_it_mounts_as_a_tool_that_describes_itself(coordinator: ModuleCoordinator, todo: Any) -> None:
    assert coordinator.get("tools", "todo") is todo
    assert isinstance(todo, Tool)
    assert not todo.side_effect_free
    assert todo.get_schema() == todo.input_schema
    assert set(todo.input_schema["properties"]) == {"action", "items"}


async def test_it_has_no_options(coordinator: ModuleCoordinator) -> None:
    with pytest.raises(ValueError, match="tool-todo: there is no 'file'"):
        await tool_todo.mount(coordinator, {"file": "todo.md"})


async def test_setting_replaces_the_list_and_shows_it(todo: Any) -> None:
    await todo.execute({"items": [{"text": "old"}]})
    done = await todo.execute(
        {
            "action": "set",
            "items": [
                {"text": "bake", "status": "done"},
                {"text": "decorate\n the cake", "status": "in_progress"},
                {"text": "eat", "status": "pending"},
            ],
        }
    )
    assert done.success
    assert done.output == "☑ bake\n▶ decorate the cake\n☐ eat"
    assert (await todo.execute({"action": "show"})).output == done.output


async def test_an_empty_list_is_said_to_be_empty(todo: Any) -> None:
    assert (await todo.execute({"action": "show"})).output == "The to-do list is empty."
    assert (await todo.execute({"items": []})).output == "The to-do list is empty."


async def test_others_see_the_items_and_cannot_change_them(coordinator: ModuleCoordinator, todo: Any) -> None:
    items = coordinator.get_capability("todo.items")
    assert items() == []
    await todo.execute({"items": [{"text": "eat", "status": "in_progress"}]})
    items().clear()
    (item,) = items()
    assert (item.text, item.status) == ("eat", "in_progress")
    with pytest.raises(dataclasses.FrozenInstanceError):
        item.status = "done"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, "'set' needs 'items'"),
        ({"action": "erase"}, "'action'"),
        ({"items": [{"text": "x", "status": "half"}]}, "'items.0.status'"),
        ({"items": [{"text": "  "}]}, "'items.0.text'"),
        ({"items": [{"status": "done"}]}, "'items.0.text' is missing"),
        ({"items": "buy cake"}, "'items'"),
        ({"todos": []}, "there is no 'todos'; there are: action, items"),
        ("buy cake", "todo: "),
    ],
)
async def test_wrong_input_is_explained_and_changes_nothing(todo: Any, wrong: Any, reason: str) -> None:
    await todo.execute({"items": [{"text": "stays"}]})
    refused = await todo.execute(wrong)
    assert not refused.success
    assert reason in refused.error["message"]
    assert reason in refused.get_serialized_output()
    assert (await todo.execute({"action": "show"})).output == "☐ stays"


async def test_every_session_has_its_own_list(todo: Any) -> None:
    other = await tool_todo.mount(AmplifierSession({"session": {"orchestrator": "n", "context": "n"}}).coordinator, {})
    await todo.execute({"items": [{"text": "mine"}]})
    assert other.items() == []


def test_its_label_says_what_it_does(todo: Any) -> None:
    assert todo.label({"items": []}) == "Updating the to-do list"
    assert todo.label({"action": "show"}) == "Looking at the to-do list"
    assert todo.label("nonsense") == "Updating the to-do list"
