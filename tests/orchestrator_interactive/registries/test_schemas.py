"""The configuration of agents and tools: fields, defaults and error messages."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator_interactive.config import validate
from orchestrator_interactive.registries.schemas import LLMAgentConfig, ToolConfig


class Place(BaseModel):
    location: str


def test_an_agents_configuration_has_the_documents_fields_and_defaults() -> None:
    config = LLMAgentConfig(type="llm", id="agent_alpha")
    assert config.model_dump() == {
        "type": "llm",
        "id": "agent_alpha",
        "llm_model": "openai/gpt-4o",
        "behavior_template": None,
        "tools": [],
        "render_policy": None,
        "enable_self_reflection": False,
        "reflection_agent_id": None,
    }


def test_a_tools_configuration_has_the_documents_fields_and_defaults() -> None:
    config = ToolConfig(name="get_weather", description="Tells the weather.", input_schema=Place)
    assert dict(config) == {
        "name": "get_weather",
        "description": "Tells the weather.",
        "input_schema": Place,
        "output_schema": None,
        "post_effects": None,
        "requires_context": False,
        "cache_ttl": None,
        "side_effect_free": False,
        "dedup_ttl": None,
        "reflect": False,
    }


def test_arguments_may_be_given_by_position_in_the_documents_order() -> None:
    named = LLMAgentConfig(type="llm", id="alpha", llm_model="demo/words", behavior_template="Hello.")
    assert LLMAgentConfig("llm", "alpha", "demo/words", behavior_template="Hello.") == named
    assert ToolConfig("look", "Looks.", Place) == ToolConfig(name="look", description="Looks.", input_schema=Place)
    with pytest.raises(TypeError, match="LLMAgentConfig: 'id' is given twice; the fields are, in order: type, id, llm"):
        LLMAgentConfig("llm", "alpha", id="beta")
    with pytest.raises(TypeError, match="ToolConfig: 11 positional arguments are too many"):
        ToolConfig(*"abcdefghijk")


@pytest.mark.parametrize(
    "config", [LLMAgentConfig(type="llm", id="a"), ToolConfig(name="a", description="")], ids=["agent", "tool"]
)
def test_a_configuration_is_frozen(config: BaseModel) -> None:
    with pytest.raises(ValidationError):
        config.name = config.id = "b"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"type": "llm"}, "agent: 'id' is missing."),
        ({"type": "llm", "id": ""}, "agent: 'id': String should have at least 1 character."),
        ({"type": "llm", "id": " a"}, "agent: 'id': an agent's id neither begins nor ends with white space."),
        ({"type": "rule", "id": "a"}, "agent: 'type': Input should be 'llm'."),
        (
            {"type": "llm", "id": "a", "llm_model": "gpt-4o"},
            "agent: 'llm_model': write a model as provider/model, such as 'anthropic/claude-sonnet-5', not 'gpt-4o'.",
        ),
        (
            {"type": "llm", "id": "a", "enable_self_reflection": True},
            "agent: 'enable_self_reflection' needs 'reflection_agent_id', the agent that judges.",
        ),
        (
            {"type": "llm", "id": "a", "model": "x"},
            (
                "agent: there is no 'model'; there are: type, id, llm_model, behavior_template, tools, render_policy, "
                "enable_self_reflection, reflection_agent_id."
            ),
        ),
    ],
)
def test_the_error_message_of_an_invalid_agent(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared
        validate(LLMAgentConfig, given, "agent")
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"name": "get weather", "description": ""},
            "tool: 'name': models call tools by up to 64 letters, digits, '_' and '-', not by 'get weather'.",
        ),
        (
            {"name": "a", "description": "", "cache_ttl": -1},
            "tool: 'cache_ttl': Input should be greater than or equal to 0.",
        ),
        (
            {"name": "a", "description": "", "input_schema": dict},
            "tool: 'input_schema': Input should be a subclass of BaseModel.",
        ),
    ],
)
def test_the_error_message_of_an_invalid_tool(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared
        validate(ToolConfig, given, "tool")
    assert str(refused.value) == sentence
