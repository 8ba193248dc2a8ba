"""`context-stack`: a context over an interaction stack."""

import asyncio
from typing import Any

import pytest
from context_histories import histories
from context_rows import a_coordinator, from_hook, said, steer, thinking, user
from fault_injecting_store import SuspendingStore
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
    BaseState,
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
from orchestrator_interactive.modules.context_stack import StackContext, StackOptions
from orchestrator_interactive.testing import MockProvider

Row = dict[str, Any]

OPTIONS = {"max_tokens": 400, "system_prompt": "You help."}


@pytest.fixture
def fixture() -> StackFixture:
    return StackFixture()


# Unusual rows of other loops and hooks.
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
    def test_every_row_is_the_same(self, rows: list[Row]) -> None:
        async def there_and_back() -> list[Row]:
            fixture = StackFixture()
            await add(fixture.context(), *rows)
            return await fixture.context().get_messages()

        assert asyncio.run(there_and_back()) == rows

    @given(st.lists(st.sampled_from(ODD) | st.sampled_from(TURN), max_size=12))
    def test_unusual_rows_are_the_same(self, rows: list[Row]) -> None:
        async def there_and_back() -> tuple[list[Row], list[Row]]:
            fixture, other = StackFixture(), StackFixture()
            await add(fixture.context(), *rows)
            await other.context().set_messages(rows)
            return await fixture.context().get_messages(), await other.context().get_messages()

        assert asyncio.run(there_and_back()) == (rows, rows)

    @given(st.dictionaries(st.text(), json_values, max_size=4), st.sampled_from(["user", "assistant", "tool", "x"]))
    def test_any_row_is_the_same(self, row: Row, role: str) -> None:
        async def there_and_back() -> list[Row]:
            fixture = StackFixture()
            await add(fixture.context(), {**row, "role": role})
            return await fixture.context().get_messages()

        assert asyncio.run(there_and_back()) == [{**row, "role": role}]

    @given(histories(), st.integers(50, 600))
    def test_the_views_are_those_of_context_simple(self, rows: list[Row], budget: int) -> None:
        async def views() -> tuple[list[Row], list[Row]]:
            fixture = StackFixture()
            await add(fixture.context(), *rows)
            simple = SimpleContext(ContextOptions(**OPTIONS), HookRegistry().emit)
            await simple.set_messages(rows)
            again = fixture.context(**OPTIONS)
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

    async def test_a_summary_is_requested_once(self, fixture: StackFixture) -> None:
        options = {**OPTIONS, "strategy": "summary", "summary_max_tokens": 60}
        provider = MockProvider(["They greeted each other at length."])
        context = fixture.context(**options)
        for number in range(12):
            await add(context, user(f"Hello {number}! " * 8), said("Hi! " * 12))
        view = await context.get_messages_for_request(400, provider)
        assert "They greeted each other" in str(view)
        assert await fixture.context(**options).get_messages_for_request(400, provider) == view
        assert provider.call_count == 1

    async def test_an_incomplete_step_is_kept(self, fixture: StackFixture) -> None:
        await add(fixture.context(), *TURN[:3])
        again = fixture.context()
        await add(again, user("What happened?"), said("I was interrupted."))
        assert await fixture.context().get_messages() == [*TURN[:3], user("What happened?"), said("I was interrupted.")]


class TestTheLog:
    async def test_rows_are_stored_as_states(self, fixture: StackFixture) -> None:
        await add(fixture.context(), *TURN, steer("Faster"), from_hook("Look here"))
        assert await fixture.kinds() == [
            "UserMessage",
            *["AssistantMessage", "ToolCall", "ToolCall"],
            *["ToolResult", "ToolResult", "AssistantMessage"],
            *["UserMessage", "Row"],
        ]

    async def test_an_answer_and_its_calls_are_one_write(self, fixture: StackFixture) -> None:
        context = fixture.context()
        await add(context, user("Hello!"))
        before = await fixture.store.load(fixture.stack().key)
        await add(context, STEP)
        after = await fixture.store.load(fixture.stack().key)
        assert before is not None
        assert after is not None
        assert (after.version, after.tree.head.end) == (before.version + 1, before.tree.head.end + 3)

    async def test_an_injection_belongs_to_the_running_task(self, fixture: StackFixture) -> None:
        await add(fixture.context(), *TURN, steer("Faster"), said("Faster now."), user("And now?"))
        assert [entry.episode async for entry in fixture.stack().iter_last_n(10)] == [*[1] * 9, 2]

    async def test_a_reward_is_kept_with_its_result(self, fixture: StackFixture) -> None:
        context = fixture.context()
        context.reward("2", 0.8)
        await add(context, *TURN)
        again = fixture.context()
        await again.set_messages(await again.get_messages())
        rewards = [e.state.reward async for e in fixture.stack().iter_last_n(9) if e.kind == "ToolResultState"]  # type: ignore[union-attr]
        assert rewards == [None, 0.8]

    async def test_states_between_agents_and_reflections_are_not_rows(self, fixture: StackFixture) -> None:
        states: list[BaseState] = [
            UserMessageState("Hello!"),
            AssistantMessageState("Hi"),
            UserResponseState("Yes"),
            AssistantMessageState("That was kind.", meta="reflection:greet"),
            AgentCallState("helper", "Look", correlation_id="7"),
            AgentResultState("7", "Found"),
        ]
        await fixture.stack().push(*states)
        assert [row["content"] for row in await fixture.context().get_messages()] == ["Hello!", "Hi", "Yes"]

    async def test_a_finished_conversation_takes_no_rows(self, fixture: StackFixture) -> None:
        context = fixture.context()
        await add(context, *TURN)
        await fixture.stack().push(FinishedState())
        with pytest.raises(ConversationFinished, match="Continue in a fork, or rewind it"):
            await context.add_message(user("And now?"))
        assert await fixture.context().get_messages() == TURN

    async def test_a_row_that_json_cannot_represent_is_refused(self, fixture: StackFixture) -> None:
        context = fixture.context()
        await add(context, *TURN)
        with pytest.raises(ValueError, match="contains a value that JSON cannot represent"):
            await context.add_message(user(b"bytes"))  # type: ignore[arg-type]
        assert await context.get_messages() == TURN
        assert await fixture.context().get_messages() == TURN


class TestRenderPolicies:
    async def test_the_policy_renders_the_request(self, fixture: StackFixture) -> None:
        context = fixture.context(render_policy="agents", system_prompt="You help.")
        await add(context, user("Hello!"), said("Let me ask.", thinking("Hm.")))
        await fixture.stack().push(AgentCallState("helper", "Look", correlation_id="7"), AgentResultState("7", "Found"))
        again = fixture.context(render_policy="agents", system_prompt="You help.")
        assert [(row["role"], row["content"]) for row in await again.get_messages_for_request()] == [
            ("system", "You help."),
            ("user", "Hello!"),
            ("assistant", "Let me ask."),
            ("assistant", "[I asked helper:]\n  Look"),
            ("user", "[The answer of helper:]\n  Found"),
        ]

    async def test_images_of_a_rendered_request_are_content_blocks(self, fixture: StackFixture) -> None:
        sources = [
            {"type": "base64", "media_type": "image/png", "data": "iVBO"},
            {"type": "url", "url": "https://example.com/a.png"},
        ]
        blocks = [{"type": "text", "text": "These"}, *({"type": "image", "source": source} for source in sources)]
        context = fixture.context(render_policy="agents")
        await add(context, {"role": "user", "content": blocks})
        assert await context.get_messages_for_request() == [{"role": "user", "content": blocks}]

    async def test_a_rendered_request_leaves_out_refused_tasks_and_repairs_rows(self, fixture: StackFixture) -> None:
        context = fixture.context(render_policy="agents")
        refused = {**said("I will n"), "metadata": {"refused": True}}
        await add(context, user("bad"), refused, user("good"), {"role": "tool", "content": "x"}, from_hook("[Go on.]"))
        told = [(row["role"], row["content"]) for row in await context.get_messages_for_request()]
        assert "refused" in told[0][1]
        assert told[1:] == [("user", "good"), ("system", "  [Go on.]")]

    async def test_a_run_with_the_summary_policy(self) -> None:
        provider = MockProvider([*([ToolCallBlock(id=f"c{n}", name="look", input={})] for n in range(8)), "Done."])
        plan = {
            "orchestrator": "loop-interactive",
            "context": {"module": "context-stack", "config": {"render_policy": "summary"}},
        }
        async with AmplifierSession({"session": plan}) as session:
            await session.coordinator.mount("providers", provider, name="mock")
            assert await session.execute("Look eight times") == "Done."
        assert "Tools that ran: look (" in str(provider.requests[-1].messages)

    async def test_an_unknown_policy_is_an_error_at_mount(self) -> None:
        with pytest.raises(ValueError, match=r"no render policy 'poem'; existing policies: agents, default, .*summary"):
            await context_stack.mount(a_coordinator(), {"render_policy": "poem"})


class TestReplacing:
    async def test_replaced_rows_stay_on_a_branch(self, fixture: StackFixture) -> None:
        context = fixture.context()
        await add(context, *TURN)
        await context.set_messages([user("Anew")])
        assert await context.get_messages() == [user("Anew")] == await fixture.context().get_messages()
        branches = await fixture.stack().get_branch_info()
        assert [(branch.length, branch.is_current) for branch in branches] == [(1, True), (7, False)]


class SlowStore(MemoryStore):
    """A store that waits before or after its next commit."""

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


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("written", [True, False])
async def test_a_row_whose_caller_is_cancelled_is_read_if_it_was_written(written: bool, moved: bool) -> None:
    fixture = StackFixture()
    fixture.store = store = SlowStore(written=written)
    context, before = fixture.context(), []
    if moved:  # the first try is a conflict
        store.go.set()
        before = [user("Earlier")]
        await add(context, *before, said("Yes?"))
        await fixture.stack().rewind(0)
        store.held.clear()
        store.go.clear()
    adding = asyncio.create_task(context.add_message(user("Hello!")))
    await store.held.wait()
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    store.go.set()
    await add(context, user("Hi"))
    rows = [*before, *([user("Hello!")] if written else []), user("Hi")]
    assert await context.get_messages() == rows == await fixture.context().get_messages()


async def test_states_that_are_pushed_during_a_read_hide_no_earlier_rows() -> None:
    fixture = StackFixture()
    fixture.store = SuspendingStore()
    stack = fixture.stack()
    await stack.push(UserMessageState("Hello!"))
    context = StackContext(StackOptions(), HookRegistry().emit, stack)

    async def push() -> None:
        for _ in range(9):
            await stack.push(UserMessageState("More"))

    _, rows = await asyncio.gather(push(), context.get_messages())
    assert rows[0] == user("Hello!")


class TestMount:
    async def test_it_uses_the_store_of_the_session_and_provides_the_stack(self) -> None:
        coordinator, store = a_coordinator(), MemoryStore()
        coordinator.register_capability("interactions.store", store)
        clean_up = await context_stack.mount(coordinator, {"conversation_id": "c", "agent_id": "a"})
        await coordinator.get("context").add_message(user("Hello!"))
        assert await coordinator.get_capability("interactions.stack").current() == UserMessageState("Hello!")
        await clean_up()
        assert await InteractionStack(store, "c", "a").length() == 1

    async def test_the_conversation_has_the_id_of_the_session_by_default(self) -> None:
        coordinator, store = a_coordinator(), MemoryStore()
        coordinator.register_capability("interactions.store", store)
        await context_stack.mount(coordinator, {})
        await coordinator.get("context").add_message(user("Hello!"))
        assert [(key.conversation_id, key.agent_id) for key in await store.keys()] == [
            (coordinator.session_id, "agent")
        ]

    async def test_without_a_store_it_opens_and_closes_its_own(self, tmp_path: Any) -> None:
        for rows in ([], [user("Hello!")]):
            coordinator = a_coordinator()
            config = {"store": f"sqlite:{tmp_path}/log.db", "conversation_id": "c"}
            clean_up = await context_stack.mount(coordinator, config)
            assert await coordinator.get("context").get_messages() == rows
            await coordinator.get("context").add_message(user("Hello!"))
            await clean_up()
