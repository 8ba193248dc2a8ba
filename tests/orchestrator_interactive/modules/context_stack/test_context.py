from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from context_histories import histories
from context_rows import a_coordinator, from_hook, said, steer, thinking, user
from hypothesis import given
from hypothesis import strategies as st
from interaction_states import json_values
from stack_fixtures import STEP, TURN, StackFixture, add

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import ConversationFinished
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    FinishedState,
    UserMessageState,
    UserResponseState,
)
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.messages import ToolCallBlock
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.modules import context_stack
from orchestrator_interactive.modules.context_simple import ContextOptions, SimpleContext
from orchestrator_interactive.testing import MockProvider

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.states import BaseState

Row = dict[str, Any]

OPTIONS = {"max_tokens": 400, "system_prompt": "You help."}


@pytest.fixture
def house() -> StackFixture:
    return StackFixture()


# What other people's loops and hooks put into contexts.
ODD: list[Row] = [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {}}]},
    {"role": "assistant", "content": "x", "tool_calls": []},
    {"role": "assistant", "content": "x", "tool_calls": [{"name": "no id"}]},
    {"role": "assistant", "content": "x", "tool_calls": "nonsense"},
    {"role": "assistant", "content": "x", "name": "Bob"},
    {"role": "assistant", "content": [{"type": "tool_call", "id": "1", "name": "look", "input": {}}]},
    {"role": "assistant", "content": [{"type": "tool_call", "id": 1}]},
    {"role": "assistant", "content": "x", "metadata": "reflection:look"},
    {"role": "assistant"},
    {"role": "user", "content": None},
    {"role": "user", "content": "x", "metadata": {}},
    {"role": "user", "content": "x", "metadata": None},
    {"role": "user", "content": []},
    {"role": "tool", "content": "x"},
    {"role": "tool", "tool_call_id": "9", "content": {"a": 1}},
    {"role": "tool", "tool_call_id": "9", "content": [1, 2]},
    {"role": "tool", "tool_call_id": "9", "name": None, "content": "x"},
    {"role": "system", "content": "x"},
    {"role": "developer", "content": [{"type": "text", "text": "x"}]},
    {"role": "someone", "else": [None, 1.5]},
]


class TestAfterARestart:
    @given(histories())
    def test_every_row_is_exactly_what_it_was(self, rows: list[Row]) -> None:
        async def there_and_back() -> list[Row]:
            house = StackFixture()
            await add(house.context(), *rows)
            return await house.context().get_messages()

        assert asyncio.run(there_and_back()) == rows

    @given(st.lists(st.sampled_from(ODD) | st.sampled_from(TURN), max_size=12))
    def test_so_are_odd_rows_in_odd_places(self, rows: list[Row]) -> None:
        async def there_and_back() -> tuple[list[Row], list[Row]]:
            house, other = StackFixture(), StackFixture()
            await add(house.context(), *rows)
            await other.context().set_messages(rows)
            return await house.context().get_messages(), await other.context().get_messages()

        assert asyncio.run(there_and_back()) == (rows, rows)

    @given(st.dictionaries(st.text(), json_values, max_size=4), st.sampled_from(["user", "assistant", "tool", "x"]))
    def test_so_is_any_row_at_all(self, row: Row, role: str) -> None:
        async def there_and_back() -> list[Row]:
            house = StackFixture()
            await add(house.context(), {**row, "role": role})
            return await house.context().get_messages()

        assert asyncio.run(there_and_back()) == [{**row, "role": role}]

    @given(histories(), st.integers(50, 600))
    def test_the_model_sees_what_it_would_see_of_context_simple(self, rows: list[Row], budget: int) -> None:
        async def views() -> tuple[list[Row], list[Row]]:
            house = StackFixture()
            await add(house.context(), *rows)
            simple = SimpleContext(ContextOptions(**OPTIONS), HookRegistry())
            await simple.set_messages(rows)
            again = house.context(**OPTIONS)
            return await simple.get_messages_for_request(budget), await again.get_messages_for_request(budget)

        simple, again = asyncio.run(views())
        assert again == simple

    @given(histories(), st.lists(st.sampled_from([60, 120, 300, 600]), min_size=30, max_size=30))
    def test_a_restart_after_every_row_changes_no_view(self, rows: list[Row], budgets: list[int]) -> None:
        async def views() -> None:
            lasting, restarted = StackFixture().context(**OPTIONS), StackFixture()
            for row, budget in zip(rows, budgets, strict=False):
                await lasting.add_message(row)
                await restarted.context(**OPTIONS).add_message(row)
                view = await restarted.context(**OPTIONS).get_messages_for_request(budget)
                assert view == await lasting.get_messages_for_request(budget)

        asyncio.run(views())

    async def test_a_summary_is_asked_for_once(self, house: StackFixture) -> None:
        options = {**OPTIONS, "strategy": "summary", "summary_max_tokens": 60}
        provider = MockProvider(["They greeted each other at length."])
        context = house.context(**options)
        for number in range(12):
            await add(context, user(f"Hello {number}! " * 8), said("Hi! " * 12))
        view = await context.get_messages_for_request(400, provider)
        assert "They greeted each other" in str(view)
        assert await house.context(**options).get_messages_for_request(400, provider) == view
        assert provider.call_count == 1

    async def test_the_conversation_goes_on_where_it_stood(self, house: StackFixture) -> None:
        await add(house.context(), *TURN)
        again = house.context()
        await add(again, user("And now?"), said("Now this."))
        assert await house.context().get_messages() == [*TURN, user("And now?"), said("Now this.")]

    async def test_half_a_step_is_there_as_far_as_it_came(self, house: StackFixture) -> None:
        await add(house.context(), *TURN[:3])
        again = house.context()
        await add(again, user("What happened?"), said("I was interrupted."))
        assert await house.context().get_messages() == [*TURN[:3], user("What happened?"), said("I was interrupted.")]


class TestTheLog:
    async def test_it_tells_what_happened(self, house: StackFixture) -> None:
        await add(house.context(), *TURN, steer("Faster"), from_hook("Look here"))
        assert await house.kinds() == [
            "UserMessage",
            *["AssistantMessage", "ToolCall", "ToolCall"],
            *["ToolResult", "ToolResult", "AssistantMessage"],
            *["UserMessage", "Row"],
        ]

    async def test_a_result_comes_from_its_call(self, house: StackFixture) -> None:
        await add(house.context(), *TURN)
        entries = [entry async for entry in house.stack().iter_last_n(9)]
        refs = {entry.ref: entry.state for entry in entries}
        calls_of = [refs[entry.parents[0]].id for entry in entries if entry.kind == "ToolResultState"]  # type: ignore[union-attr]
        assert calls_of == ["1", "2"]

    async def test_an_answer_and_its_calls_are_one_step(self, house: StackFixture) -> None:
        context = house.context()
        await add(context, user("Hello!"))
        before = await house.store.load(house.stack().key)
        await add(context, STEP)
        after = await house.store.load(house.stack().key)
        assert before is not None
        assert after is not None
        assert (after.version, after.tree.head.end) == (before.version + 1, before.tree.head.end + 3)

    async def test_what_is_said_meanwhile_belongs_to_the_task_that_is_on(self, house: StackFixture) -> None:
        await add(house.context(), *TURN, steer("Faster"), said("Faster now."), user("And now?"))
        assert [entry.episode async for entry in house.stack().iter_last_n(10)] == [*[1] * 9, 2]

    async def test_a_reward_is_written_with_the_result(self, house: StackFixture) -> None:
        context = house.context()
        context.reward("2", 0.8)
        await add(context, *TURN)
        rewards = [e.state.reward async for e in house.stack().iter_last_n(9) if e.kind == "ToolResultState"]  # type: ignore[union-attr]
        assert rewards == [None, 0.8]

    async def test_it_stays_with_it_where_the_history_is_set_anew(self, house: StackFixture) -> None:
        context = house.context()
        context.reward("2", 0.8)
        await add(context, *TURN)
        again = house.context()
        await again.set_messages(await again.get_messages())
        rewards = [e.state.reward async for e in house.stack().iter_last_n(9) if e.kind == "ToolResultState"]  # type: ignore[union-attr]
        assert rewards == [None, 0.8]

    async def test_what_is_said_about_the_conversation_is_not_said_in_it(self, house: StackFixture) -> None:
        states: list[BaseState] = [
            UserMessageState("Hello!"),
            AssistantMessageState("Hi"),
            AssistantMessageState("That was kind.", meta="reflection:greet"),
            AgentCallState("helper", "Look", correlation_id="7"),
            AgentResultState("7", "Found"),
        ]
        await house.stack().push(*states)
        assert await house.context().get_messages() == [user("Hello!"), {"role": "assistant", "content": "Hi"}]

    async def test_what_others_wrote_is_read(self, house: StackFixture) -> None:
        await house.stack().push(
            UserMessageState("Shall we?"), AssistantMessageState("Sure?"), UserResponseState("Yes")
        )
        assert [row["content"] for row in await house.context().get_messages()] == ["Shall we?", "Sure?", "Yes"]

    async def test_nothing_is_added_to_a_finished_conversation(self, house: StackFixture) -> None:
        context = house.context()
        await add(context, *TURN)
        await house.stack().push(FinishedState())
        with pytest.raises(ConversationFinished, match="Continue in a fork, or rewind it"):
            await context.add_message(user("And now?"))
        assert await house.context().get_messages() == TURN

    async def test_a_row_that_json_does_not_know_is_refused(self, house: StackFixture) -> None:
        context = house.context()
        await add(context, *TURN)
        with pytest.raises(ValueError, match="contains a value that JSON cannot represent"):
            await context.add_message(user(b"bytes"))  # type: ignore[arg-type]
        assert await context.get_messages() == TURN
        assert await house.context().get_messages() == TURN


class TestRenderPolicies:
    async def test_a_policy_says_what_the_model_sees(self, house: StackFixture) -> None:
        context = house.context(render_policy="agents", system_prompt="You help.")
        await add(context, user("Hello!"), said("Let me ask.", thinking("Hm.")))
        await house.stack().push(AgentCallState("helper", "Look", correlation_id="7"), AgentResultState("7", "Found"))
        again = house.context(render_policy="agents", system_prompt="You help.")
        assert [(row["role"], row["content"]) for row in await again.get_messages_for_request()] == [
            ("system", "You help."),
            ("user", "Hello!"),
            ("assistant", "Let me ask."),
            ("assistant", "[I asked helper:]\n  Look"),
            ("user", "[The answer of helper:]\n  Found"),
        ]

    async def test_images_are_shown(self, house: StackFixture) -> None:
        images = [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ]
        await add(house.context(), user([{"type": "text", "text": "Look"}, *images]))  # type: ignore[arg-type]
        (row,) = await house.context(render_policy="agents").get_messages_for_request()
        assert row["content"][1:] == images

    async def test_an_agent_works_with_one(self) -> None:
        provider = MockProvider([*([ToolCallBlock(id=f"c{n}", name="look", input={})] for n in range(8)), "Done."])
        plan = {
            "orchestrator": "loop-interactive",
            "context": {"module": "context-stack", "config": {"render_policy": "summary"}},
        }
        async with AmplifierSession({"session": plan}) as session:
            await session.coordinator.mount("providers", provider, name="mock")
            assert await session.execute("Look eight times") == "Done."
        assert "Tools that ran: look (" in str(provider.requests[-1].messages)

    async def test_one_that_nobody_knows_is_told_at_once(self) -> None:
        with pytest.raises(ValueError, match=r"no render policy 'poem'; existing policies: agents, default, .*summary"):
            await context_stack.mount(a_coordinator(), {"render_policy": "poem"})


class TestReplacing:
    async def test_what_was_there_stays_on_a_branch(self, house: StackFixture) -> None:
        context = house.context()
        await add(context, *TURN)
        await context.set_messages([user("Anew")])
        assert await context.get_messages() == [user("Anew")] == await house.context().get_messages()
        branches = await house.stack().get_branch_info()
        assert [(branch.length, branch.is_current) for branch in branches] == [(1, True), (7, False)]

    async def test_a_cleared_conversation_is_empty(self, house: StackFixture) -> None:
        context = house.context()
        await add(context, *TURN)
        await context.clear()
        assert await context.get_messages() == [] == await house.context().get_messages()


class SlowStore(MemoryStore):
    """A store that has written its next commit, or not yet, when it is held up."""

    def __init__(self, *, written: bool) -> None:
        super().__init__()
        self._written = written
        self.held, self.go = asyncio.Event(), asyncio.Event()

    async def commit(self, key: Any, change: Any) -> None:
        if self._written:
            await super().commit(key, change)
        self.held.set()
        await self.go.wait()
        if not self._written:
            await super().commit(key, change)


@pytest.mark.parametrize("written", [True, False])
async def test_a_row_whose_caller_is_cancelled_is_seen_if_it_was_written(written: bool) -> None:
    house = StackFixture()
    house.store = store = SlowStore(written=written)
    context = house.context()
    adding = asyncio.create_task(context.add_message(user("Hello!")))
    await store.held.wait()
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    store.go.set()
    await add(context, user("Hi"))
    rows = [user("Hello!"), user("Hi")] if written else [user("Hi")]
    assert await context.get_messages() == rows == await house.context().get_messages()


class TestMount:
    async def test_it_takes_the_session_s_store_and_brings_the_stack(self) -> None:
        coordinator, store = a_coordinator(), MemoryStore()
        coordinator.register_capability("interactions.store", store)
        clean_up = await context_stack.mount(coordinator, {"conversation_id": "c", "agent_id": "a"})
        await coordinator.get("context").add_message(user("Hello!"))
        assert await coordinator.get_capability("interactions.stack").current() == UserMessageState("Hello!")
        await clean_up()
        assert await InteractionStack(store, "c", "a").length() == 1

    async def test_without_one_it_opens_its_own_and_closes_it(self, tmp_path: Any) -> None:
        for rows in ([], [user("Hello!")]):
            coordinator = a_coordinator()
            config = {"store": f"sqlite:{tmp_path}/log.db", "conversation_id": "c"}
            clean_up = await context_stack.mount(coordinator, config)
            assert await coordinator.get("context").get_messages() == rows
            await coordinator.get("context").add_message(user("Hello!"))
            await clean_up()

    async def test_its_conversation_is_the_session_s_unless_it_is_told(self) -> None:
        coordinator = a_coordinator()
        await context_stack.mount(coordinator, {})
        key = coordinator.get_capability("interactions.stack").key
        assert key.conversation_id == coordinator.session_id

    async def test_a_wrong_option_is_told(self) -> None:
        with pytest.raises(ValueError, match="context-stack: there is no 'stroe'"):
            await context_stack.mount(a_coordinator(), {"stroe": "memory:"})
