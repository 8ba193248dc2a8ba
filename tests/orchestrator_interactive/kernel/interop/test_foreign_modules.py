"""Modules that are written for amplifier-core, in our session."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import amplifier_core
import pytest
from agents import Recorder, faults, soon, text_of, told
from amplifier_core.module_sources import ModuleSource
from amplifier_core.validation import (
    ContextValidator,
    HookValidator,
    OrchestratorValidator,
    ProviderValidator,
    ToolValidator,
)

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError, LLMError, RateLimitError
from orchestrator_interactive.kernel.interop import to_local_error

Make = Callable[..., Any]

DEMO = {"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}
LEDGER = {"module": "tool-ledger"}


def strict(*script: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"module": "provider-strict", "config": {"script": list(script)}}]


def ledger(call_id: str, **given: Any) -> dict[str, Any]:
    return {"id": call_id, "name": "ledger", "input": given}


@pytest.mark.parametrize(
    ("validator", "name"),
    [
        (ProviderValidator, "provider_strict"),
        (ToolValidator, "tool_ledger"),
        (ToolValidator, "tool_census"),
        (HookValidator, "hooks_guard"),
        (ContextValidator, "context_scroll"),
        (OrchestratorValidator, "loop_plain"),
    ],
)
async def test_the_foreign_modules_are_valid_for_amplifier_core(foreign_modules, validator: Any, name: str) -> None:
    result = await validator().validate(foreign_modules / f"amplifier_module_{name}")
    assert result.passed, result.checks


class TestAProvider:
    async def test_it_gets_and_returns_its_own_types(self, local_session: Make) -> None:
        """The provider refuses values of other types."""
        session = await local_session(
            providers=strict(
                {"think": "Hm.", "say": "I look.", "call": [ledger("a", action="add", entry="milk")]}, {"say": "Done."}
            ),
            tools=[LEDGER],
        )
        assert await soon(session.execute("add milk")) == "Done."
        _, second = session.coordinator.get("providers", "strict").requests
        assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
        thought, text, call = second.messages[1].content
        assert (thought.thinking, thought.signature) == ("Hm.", "signed by strict")
        assert text.text == "I look."
        assert (call.id, call.name, call.input) == ("a", "ledger", {"action": "add", "entry": "milk"})
        assert second.messages[2].tool_call_id == "a"
        assert [spec.name for spec in second.tools] == ["ledger"]

    async def test_its_rate_limit_becomes_ours(self, local_session: Make) -> None:
        loop = {"module": "loop-interactive", "config": {"max_retries": 0}}
        session = await local_session(
            session={"orchestrator": loop}, providers=strict({"retry_after": 7}, {"say": "Here."})
        )
        recorder = Recorder().listen(session.coordinator.hooks, "provider:error")
        with pytest.raises(RateLimitError) as caught:
            await soon(session.execute("one"))
        error = caught.value
        assert (error.provider, error.status_code, error.retry_after, error.retryable) == ("strict", 429, 7, True)
        assert isinstance(error.__cause__, amplifier_core.RateLimitError)
        assert recorder.of("provider:error")[0]["error"] == {"type": "RateLimitError", "msg": str(error)}
        assert await soon(session.execute("two")) == "Here."

    @pytest.mark.parametrize(
        ("theirs", "ours"),
        [
            (amplifier_core.QuotaExceededError("Spent."), RateLimitError),
            (amplifier_core.AccessDeniedError("No."), AuthenticationError),
            (amplifier_core.StreamError("Cut."), LLMError),
            (type("Mine", (amplifier_core.RateLimitError,), {})("Slow."), RateLimitError),
        ],
    )
    def test_its_other_errors_become_the_nearest_of_ours(self, theirs: Any, ours: type[LLMError]) -> None:
        error = to_local_error(theirs)
        assert type(error) is ours
        assert (str(error), error.retryable) == (str(theirs), theirs.retryable)  # type: ignore[attr-defined]


class TestATool:
    async def test_every_form_of_its_result_is_converted(self, local_session: Make) -> None:
        calls = [
            ledger("a", action="add", entry="milk"),
            ledger("b", action="list"),
            ledger("c", action="burn"),
            ledger("d", action="picture"),
        ]
        session = await local_session(providers=strict({"call": calls}, {"say": "Done."}), tools=[LEDGER])
        assert await soon(session.execute("go")) == "Done."
        rows = await session.coordinator.get("context").get_messages()
        added, listed, burnt, seen = [row for row in rows if row["role"] == "tool"]
        assert added["content"] == '{"entries": ["milk"], "last": null}'
        assert listed["content"] == "milk"
        assert (burnt["content"], burnt["metadata"]) == ("I cannot do 'burn'.", {"is_error": True})
        assert [block["type"] for block in seen["content"]] == ["text", "image"]
        assert faults(rows) == []


class TestAContext:
    async def test_it_keeps_the_conversation(self, local_session: Make) -> None:
        session = await local_session(
            session={"context": {"module": "context-scroll", "config": {"longest": 3}}},
            providers=strict(
                {"call": [ledger("a", action="list")]}, {"call": [ledger("b", action="list")]}, {"say": "Done."}
            ),
            tools=[LEDGER],
        )
        assert await soon(session.execute("go")) == "Done."
        context = session.coordinator.get("context")
        assert context.windows == [100_000] * 3
        assert [row["role"] for row in await context.get_messages()] == [
            *("user", "assistant", "tool", "assistant", "tool", "assistant")
        ]
        last = session.coordinator.get("providers", "strict").requests[-1]
        assert [message.tool_call_id for message in last.messages if message.role == "tool"] == ["b"]

    async def test_it_takes_an_injection(self, local_session: Make) -> None:
        session = await local_session(
            session={"context": "context-scroll"}, providers=strict({"say": "One."}, {"say": "Two."})
        )
        inject = session.coordinator.get_capability("orchestrator.inject_message")

        async def steer(_event: str, _data: dict[str, Any]) -> None:
            unregister()
            inject("and this")

        unregister = session.coordinator.hooks.register("provider:response", steer)
        assert await soon(session.execute("go")) == "Two."
        rows = await session.coordinator.get("context").get_messages()
        assert [role for role, _ in told(rows)] == ["user", "assistant", "user", "assistant"]
        assert "and this" in text_of(rows[2])


class TestOnSessionReady:
    async def test_it_runs_after_every_module_is_mounted(self, local_session: Make) -> None:
        session = await local_session(
            providers=strict(), tools=[{"module": "tool-census"}, LEDGER, {"module": "tool-todo"}]
        )
        assert session.coordinator.get("tools", "census").tools == ["census", "ledger", "todo"]

    async def test_a_failure_is_ignored(self, local_session: Make) -> None:
        census = {"module": "tool-census", "config": {"fails": True}}
        session = await local_session(providers=strict({"say": "Done."}), tools=[census, LEDGER])
        assert await soon(session.execute("go")) == "Done."


class FolderResolver:
    """A resolver of an amplifier-core application, which leaves modules that it does not know to the entry points."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, Any]] = []

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> ModuleSource | None:
        self.asked.append((module_id, source_hint or profile_hint))
        if not (self.folder / f"amplifier_module_{module_id.replace('-', '_')}").is_dir():
            return None
        return FolderSource(self.folder)


class FolderSource(ModuleSource):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resolve(self) -> Path:
        return self.folder


async def test_a_resolver_finds_them_and_entry_points_the_others(foreign_modules: Path) -> None:
    plan = {
        "session": {
            "orchestrator": "loop-interactive",
            "context": {"module": "context-scroll", "source": "resolver:2"},
        },
        "providers": strict({"say": "Done."}),
    }
    session = AmplifierSession(plan)
    resolver = FolderResolver(foreign_modules)
    session.coordinator.mount("module-source-resolver", resolver)
    async with session:
        assert await soon(session.execute("go")) == "Done."
    assert resolver.asked == [("loop-interactive", None), ("context-scroll", "resolver:2"), ("provider-strict", None)]


async def test_foreign_and_our_modules_work_in_one_session_of_amplifier_core(
    core_session: Make, foreign_modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loader finds modules on `sys.path`."""
    monkeypatch.setattr(sys, "path", [str(foreign_modules), *sys.path])
    script = strict({"think": "Hm.", "call": [ledger("a", action="add", entry="milk")]}, {"say": "Done."})
    plan = {"providers": script, "tools": [LEDGER, {"module": "tool-todo"}]}
    session = await core_session(plan=plan, context="context-scroll")
    assert await session.run("add milk") == "Done."
    assert faults(await session.rows()) == []
    _, second = session.coordinator.get("providers", "strict").requests
    assert second.messages[1].content[0].signature == "signed by strict"
