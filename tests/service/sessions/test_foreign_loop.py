"""Orchestrators of other authors in the service."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import foreign_loops
import pytest
from anthropic_server import Gate, text, tool_call
from session_tests import ANA, HERE, ProgressRecorder, steering

from connector.protocols import QueueFull, RunFailed
from service.config.config import ModuleConfig

EVERY = {"exact": foreign_loops.EXACT, "steered": foreign_loops.STEERED, "documented": foreign_loops.DOCUMENTED}


@pytest.fixture
def sessions_with(tmp_path, started):
    """Start a manager over an SQLite file whose agent has this loop."""

    def start(source, **fields):
        path = tmp_path / f"loop_{uuid4().hex}.py"  # a process imports a module of one name once
        path.write_text(source)
        return started(orchestrator=ModuleConfig(module="loop-foreign", source=str(path)), tools=_todo(), **fields)

    return start


def _todo():
    return [ModuleConfig(module="tool-todo")]


async def run(sessions, progress, prompt="hello", message_id=HERE):
    return await sessions.execute("alpha", HERE, prompt, progress, message_id=message_id, author=ANA)


@pytest.mark.parametrize("kind", EVERY)
async def test_any_loop_answers_and_its_log_says_which_message_it_read(model, sessions_with, kind):
    progress = ProgressRecorder()
    async with sessions_with(EVERY[kind]) as sessions:
        assert await run(sessions, progress) == "fine"
        assert await sessions.delivered("alpha", HERE, [HERE, "T:C:9.0"]) == {HERE}
        assert await run(sessions, progress, "again", "T:C:2.0") == "fine"
        assert await sessions.delivered("alpha", HERE, [HERE, "T:C:2.0"]) == {HERE, "T:C:2.0"}
    assert progress.statuses == ["success", "success"]


async def test_hook_events_of_the_loop_become_its_progress(model, sessions_with):
    progress = ProgressRecorder()
    model.reply(tool_call("todo", {"action": "show"}))
    async with sessions_with(foreign_loops.EXACT) as sessions:
        await run(sessions, progress)
    assert [event for event, _ in progress.events] == [
        "executing",
        "thinking",
        "tool:start",
        "tool:end",
        "thinking",
        "complete",
    ]
    ((start,), (end,)) = progress.data("tool:start"), progress.data("tool:end")
    assert (start["tool"], start["id"], end["success"]) == ("todo", end["id"], True)
    (call,) = progress.data("complete")[0]["tools"]
    assert call["outcome"] == "finished"


async def test_messages_that_wait_are_read_in_one_run_of_a_loop_without_steering(model, sessions_with):
    progress = ProgressRecorder()

    async def with_waiting(event, data):
        if event == "executing":
            for number in (4.0, 3.0):
                assert sessions.inject("alpha", HERE, **steering(f"T:C:{number}", f"also {number}", number))
        await progress(event, data)

    async with sessions_with(foreign_loops.EXACT) as sessions:
        await sessions.execute("alpha", HERE, "hello", with_waiting, message_id=HERE, author=ANA)
        ids = [HERE, "T:C:3.0", "T:C:4.0"]
        assert await sessions.delivered("alpha", HERE, ids) == set(ids)
    assert len(model.requests) == 1
    prompt = model.bodies[0]["messages"][-1]["content"]
    prompt = prompt if isinstance(prompt, str) else prompt[0]["text"]
    assert prompt.splitlines() == ["Ana (U0ANA): hello", "Ana (U0ANA): also 3.0", "Ana (U0ANA): also 4.0"]
    assert progress.data("injection:applied")[0]["ids"] == ["T:C:3.0", "T:C:4.0"]


async def test_a_loop_without_steering_accepts_no_message_while_it_works(model, sessions_with):
    progress, gate = ProgressRecorder(), Gate()
    model.reply(gate, text("fine"))
    async with sessions_with(foreign_loops.EXACT) as sessions:
        working = asyncio.create_task(run(sessions, progress))
        await gate.reached.wait()
        assert not sessions.inject("alpha", HERE, **steering("T:C:2.0"))
        gate.open()
        assert await working == "fine"
        assert await sessions.delivered("alpha", HERE, ["T:C:2.0"]) == frozenset()


@pytest.mark.parametrize("kind", ["steered", "documented"])
async def test_a_message_is_passed_to_the_capability_of_the_loop_and_delivered_once(model, sessions_with, kind):
    progress, gate = ProgressRecorder(), Gate()
    model.reply(gate, tool_call("todo", {"action": "show"}))
    async with sessions_with(EVERY[kind]) as sessions:
        working = asyncio.create_task(run(sessions, progress))
        await gate.reached.wait()
        for _ in range(2):
            assert sessions.inject("alpha", HERE, **steering("T:C:2.0", "and the date"))
        assert not await sessions.withdraw("alpha", HERE, "T:C:2.0")
        assert await sessions.delivered("alpha", HERE, ["T:C:2.0"]) == frozenset()
        gate.open()
        await working
        assert await sessions.delivered("alpha", HERE, ["T:C:2.0"]) == {"T:C:2.0"}
    assert str(model.bodies[-1]).count("Ana (U0ANA): and the date") == 1
    assert {"T:C:2.0"} in [set(data.get("ids", ())) for data in progress.data("injection:applied")]


async def test_a_message_that_the_loop_did_not_read_may_begin_the_next_run(model, sessions_with):
    progress, gate = ProgressRecorder(), Gate()
    model.reply(gate, text("fine"))
    async with sessions_with(foreign_loops.STEERED) as sessions:
        working = asyncio.create_task(run(sessions, progress))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0", "too late"))
        gate.open()
        await working
        assert progress.data("complete")[0]["waiting"] == 1
        assert await sessions.delivered("alpha", HERE, ["T:C:2.0"]) == frozenset()
        await run(sessions, progress, "too late", "T:C:2.0")
        assert await sessions.delivered("alpha", HERE, ["T:C:2.0"]) == {"T:C:2.0"}


async def test_a_full_queue_of_the_loop_is_reported(model, sessions_with):
    gate = Gate()
    model.reply(gate, text("fine"))
    async with sessions_with(foreign_loops.STEERED) as sessions:
        working = asyncio.create_task(run(sessions, None))
        await gate.reached.wait()
        for number in (2, 3):
            assert sessions.inject("alpha", HERE, **steering(f"T:C:{number}.0"))
        with pytest.raises(QueueFull):
            sessions.inject("alpha", HERE, **steering("T:C:4.0"))
        gate.open()
        await working


@pytest.mark.parametrize("immediate", [True, False])
async def test_a_stop_ends_a_loop_that_looks_at_no_token(model, sessions_with, monkeypatch, immediate):
    monkeypatch.setattr("service.sessions.foreign_loop.STOP_GRACE_S", 0.2)
    progress, gate = ProgressRecorder(), Gate()
    model.reply(gate, text("never"))
    async with sessions_with(foreign_loops.EXACT) as sessions:
        working = asyncio.create_task(run(sessions, progress))
        await gate.reached.wait()
        assert sessions.stop("alpha", HERE, immediate=immediate)
        assert await working == ""
        assert progress.statuses == ["cancelled"]
        assert await run(sessions, progress, "again", "T:C:2.0") == "fine"
    assert progress.statuses == ["cancelled", "success"]


ONE_AT_A_TIME = foreign_loops.STEERED.replace(
    "while not self.queue.empty():\n                await", "if not self.queue.empty():\n                await"
)
ON_ONE_LINE = foreign_loops.STEERED.replace(
    '"content": self.queue.get_nowait()}', '"content": " ".join(self.queue.get_nowait().split())}'
).replace('{"role": "user", "content": prompt}', '{"role": "user", "content": " ".join(prompt.split())}')
LATER = foreign_loops.STEERED.replace("    def steer(self, message):", "    async def steer(self, message):")


@pytest.mark.parametrize(("first", "second"), [("fix it now", "fix it"), ("yes", "yes")])
async def test_a_message_is_not_delivered_by_the_row_of_another_that_contains_it(model, sessions_with, first, second):
    gate = Gate()
    model.reply(gate, tool_call("todo", {"action": "show"}))
    async with sessions_with(ONE_AT_A_TIME) as sessions:
        working = asyncio.create_task(run(sessions, None))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0", first))
        assert sessions.inject("alpha", HERE, **steering("T:C:3.0", second))
        gate.open()
        await working
        assert await sessions.delivered("alpha", HERE, ["T:C:2.0", "T:C:3.0"]) == {"T:C:2.0"}


async def test_a_message_is_recognised_whatever_spaces_the_loop_puts_into_it(model, sessions_with):
    gate = Gate()
    model.reply(gate, tool_call("todo", {"action": "show"}))
    async with sessions_with(ON_ONE_LINE) as sessions:
        working = asyncio.create_task(run(sessions, None, "hello\n\nall"))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0", "fix it\n  now"))
        gate.open()
        await working
        assert await sessions.delivered("alpha", HERE, [HERE, "T:C:2.0"]) == {HERE, "T:C:2.0"}


async def test_a_loop_may_be_steered_by_an_async_function(model, sessions_with):
    gate = Gate()
    model.reply(gate, tool_call("todo", {"action": "show"}))
    async with sessions_with(LATER) as sessions:
        working = asyncio.create_task(run(sessions, None))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0"))
        gate.open()
        await working
        assert await sessions.delivered("alpha", HERE, ["T:C:2.0"]) == {"T:C:2.0"}


_NOTHING = """
class Loop:
    async def execute(self, prompt, context, providers, tools, hooks):
        {body}


async def mount(coordinator, config):
    loop = Loop()
    await coordinator.mount("orchestrator", loop)
    if hasattr(loop, "steer"):
        coordinator.register_capability("session.steer", loop.steer)
"""
OWN_HISTORY = _NOTHING.format(body="return 'fine'")
SETS_MESSAGES = _NOTHING.format(
    body="""rows = [{"role": each["role"], "content": each["content"]} for each in await context.get_messages()]
        rows += [{"role": "user", "content": prompt}, {"role": "assistant", "content": "fine"}]
        await context.set_messages(rows)
        return 'fine'"""
)
WINDOW = SETS_MESSAGES.replace("await context.get_messages()]", "(await context.get_messages())[:0]]")
SILENT = _NOTHING.format(body="""await context.add_message({"role": "user", "content": prompt})""")


@pytest.mark.parametrize("source", [OWN_HISTORY, SETS_MESSAGES, WINDOW])
async def test_a_loop_with_a_history_of_its_own_has_read_its_prompt(model, sessions_with, source):
    progress = ProgressRecorder()
    async with sessions_with(source) as sessions:
        for number in range(1, 4):  # equal texts are different messages
            assert await run(sessions, progress, "yes", f"T:C:{number}.0") == "fine"
        ids = {f"T:C:{number}.0" for number in range(1, 4)}
        assert await sessions.delivered("alpha", HERE, ids) == ids
    assert len(progress.data("thinking")) == 3


async def test_a_loop_that_returns_nothing_has_no_answer(model, sessions_with):
    progress = ProgressRecorder()
    async with sessions_with(SILENT) as sessions:
        assert await run(sessions, progress) == ""
        assert await sessions.delivered("alpha", HERE, [HERE]) == {HERE}
    assert progress.statuses == ["success"]


IGNORES_ITS_STOP = foreign_loops.EXACT.replace(
    "answer = await provider.complete(ChatRequest(messages=[Message(**row) for row in rows], tools=specs or None))",
    """call = asyncio.ensure_future(provider.complete(ChatRequest(messages=[Message(**row) for row in rows])))
        while not call.done():
            try:
                await asyncio.shield(call)
            except asyncio.CancelledError:
                pass
        answer = call.result()""",
)


async def test_a_loop_that_ignores_its_stop_leaves_the_conversation_usable_and_writes_no_row_later(
    model, sessions_with
):
    progress, gate = ProgressRecorder(), Gate()
    model.reply(gate, text("too late"))
    async with sessions_with(IGNORES_ITS_STOP) as sessions:
        working = asyncio.create_task(run(sessions, progress))
        await gate.reached.wait()
        assert sessions.stop("alpha", HERE, immediate=True)
        assert await working == ""
        assert await run(sessions, progress, "again", "T:C:2.0") == "fine"
        gate.open()
        assert await run(sessions, progress, "and again", "T:C:3.0") == "fine"
        ids = {HERE, "T:C:2.0", "T:C:3.0"}
        assert await sessions.delivered("alpha", HERE, ids) == ids
    assert progress.statuses == ["cancelled", "success", "success"]
    assert "too late" not in str(model.bodies[-1])


@pytest.mark.parametrize("error", ["TypeError('one argument more')", "ValueError('not now')"])
async def test_a_message_that_the_loop_refuses_is_for_the_next_run(model, sessions_with, error):
    gate = Gate()
    model.reply(gate, text("fine"))
    source = foreign_loops.STEERED.replace("self.queue.put_nowait(message)", f"raise {error}")
    async with sessions_with(source) as sessions:
        working = asyncio.create_task(run(sessions, None))
        await gate.reached.wait()
        assert not sessions.inject("alpha", HERE, **steering("T:C:2.0"))
        gate.open()
        assert await working == "fine"


async def test_a_loop_that_exits_fails_its_run_only(model, sessions_with):
    async with sessions_with(_NOTHING.format(body="raise SystemExit(3)")) as sessions:
        with pytest.raises(RunFailed):
            await run(sessions, None)


async def test_the_next_request_of_the_loop_has_the_ephemeral_injections_of_hooks_once(model, sessions_with, tmp_path):
    hook = tmp_path / f"hook_{uuid4().hex}.py"
    hook.write_text(
        "from orchestrator_interactive.kernel import HookResult\n\n\n"
        "async def remind(event, data):\n"
        "    return HookResult(action='inject_context', context_injection='Be brief.', ephemeral=True)\n\n\n"
        "async def mount(coordinator, config):\n"
        "    coordinator.hooks.register('session:start', remind)\n"
    )
    hooks = [ModuleConfig(module="hooks-brief", source=str(hook))]
    async with sessions_with(foreign_loops.EXACT, hooks=hooks) as sessions:
        for number in (1, 2):
            await run(sessions, None, "hello", f"T:C:{number}.0")
    assert [str(body).count("Be brief.") for body in model.bodies] == [1, 0]
