"""The tool todo."""

import dataclasses
from typing import Any

import pytest
from agents import call, make_agent, say, use

from connector.runs.status_text import Activity, todo_lines
from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator
from orchestrator_interactive.modules import tool_todo


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator


@pytest.fixture
async def todo(coordinator: ModuleCoordinator) -> Any:
    return await tool_todo.mount(coordinator, {})


async def test_set_replaces_the_list_and_returns_it(todo: Any) -> None:
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
    assert (await todo.execute({"items": []})).output == "The to-do list is empty."


async def test_a_process_that_continues_the_conversation_has_the_list_of_its_log() -> None:
    before = await make_agent(
        call(use("todo", "a", items=[{"text": "old"}])),
        call(use("todo", "b", action="create", todos=PLAN), use("todo", "c", items="eat")),
        say("ok"),
    )
    await tool_todo.mount(before.coordinator, {})
    await before.run("plan")
    after = await make_agent(call(use("todo", "d", action="show")), say("ok"))
    await tool_todo.mount(after.coordinator, {})
    await after.context.set_messages(await before.context.get_messages())
    await after.run("show it")
    [*_, shown] = [row for row in await after.context.get_messages() if row["role"] == "tool"]
    assert shown["content"] == "☑ Bake\n▶ Eat"
    assert after.coordinator.todo_state == PLAN  # type: ignore[attr-defined]


async def test_the_capability_has_read_only_items(coordinator: ModuleCoordinator, todo: Any) -> None:
    assert not todo.side_effect_free
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
        ({"todo": []}, "there is no 'todo'; there are: action, items"),
        ({"action": "create", "todos": [{"content": "x", "status": "complete"}]}, "'todos.0.status'"),
        ({"items": [], "todos": []}, "'items' and 'todos' are names of the same option"),
        ("buy cake", "todo: "),
    ],
)
async def test_the_error_of_invalid_input_names_the_field_and_changes_nothing(todo, wrong: Any, reason: str) -> None:
    await todo.execute({"items": [{"text": "stays"}]})
    refused = await todo.execute(wrong)
    assert not refused.success
    assert reason in refused.error["message"]
    assert reason in refused.get_serialized_output()
    assert (await todo.execute({"action": "show"})).output == "☐ stays"


PLAN = [
    {"content": "Bake", "activeForm": "Baking", "status": "completed"},
    {"content": "Eat", "activeForm": "Eating", "status": "in_progress"},
]


async def test_the_calls_of_amplifiers_tool_have_its_answers(coordinator: ModuleCoordinator, todo: Any) -> None:
    counts = {"count": 2, "pending": 0, "in_progress": 1, "completed": 1}
    assert (await todo.execute({"action": "create", "todos": PLAN[:1]})).output["status"] == "created"
    updated = await todo.execute({"action": "update", "todos": PLAN})
    assert updated.output == {"status": "updated", **counts, "todos": PLAN}
    assert (await todo.execute({"action": "list"})).output == {"status": "listed", **counts, "todos": PLAN}
    assert [(item.text, item.status) for item in todo.items()] == [("Bake", "done"), ("Eat", "in_progress")]
    assert todo.label({"action": "list"}) == "Looking at the to-do list"
    # Amplifier's hooks-todo-reminder reads this attribute before each request.
    assert coordinator.todo_state == PLAN  # type: ignore[attr-defined]


async def test_an_item_of_amplifier_may_have_more_keys_and_a_long_text(todo: Any) -> None:
    given = [{**PLAN[0], "content": "x" * 5_000, "activeForm": "y" * 5_000, "id": "1", "priority": "high"}, PLAN[1]]
    args = {"action": "create", "todos": given}
    long = {key: given[0][key] for key in PLAN[0]}
    assert (await todo.execute(args)).output["todos"] == [long, PLAN[1]]
    status = Activity()
    for event in ("tool:start", "tool:end", "thinking"):
        status.on_event(event, {"tool": "todo", "id": "1", "args": args})
    first, cut, second = todo_lines(status.todo)
    assert (first, second) == ("To do: 1 of 2 done", "▶ Eat")
    assert cut.startswith("☑ xxx")
    assert cut.endswith("…")


def test_the_label_names_the_action(todo: Any) -> None:
    assert todo.label({"items": []}) == "Updating the to-do list"
    assert todo.label({"action": "show"}) == "Looking at the to-do list"
    assert todo.label("nonsense") == "Updating the to-do list"
