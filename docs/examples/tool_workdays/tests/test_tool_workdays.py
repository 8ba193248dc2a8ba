import pytest
from amplifier_module_tool_workdays import mount

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.testing import MockProvider, TestCoordinator

CHRISTMAS = {"holidays": ["2026-12-25"]}


async def test_weekends_and_holidays_do_not_count() -> None:
    tool = await mount(TestCoordinator(), CHRISTMAS)
    result = await tool.execute({"start": "2026-12-24", "days": 2})
    assert result.output == "Tuesday, 2026-12-29"


@pytest.mark.parametrize("wrong", [{}, {"start": "soon", "days": 2}, {"start": "2026-12-24", "days": 0}])
async def test_wrong_input_is_explained(wrong: dict[str, object]) -> None:
    tool = await mount(TestCoordinator(), {})
    result = await tool.execute(wrong)
    assert not result.success
    assert result.get_serialized_output().startswith("working_days: '")


async def test_an_agent_uses_it() -> None:
    call = ToolCall(id="1", name="working_days", arguments={"start": "2026-12-24", "days": 2})
    model = MockProvider([call, "On Tuesday."])
    plan = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}
    async with AmplifierSession(plan) as session:
        await session.coordinator.mount("providers", model)
        await mount(session.coordinator, CHRISTMAS)
        assert await session.execute("When is it due?") == "On Tuesday."
    assert model.requests[-1].messages[-1].content == "Tuesday, 2026-12-29"
