"""What an agent and a tool are configured with; `options.read` makes sentences of what is wrong."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from orchestrator_interactive.config import Options

# What the models' services take.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class LLMAgentConfig(Options):
    """An agent that a language model moves.

    Args:
        id: the name by which others find it.
        llm_model: who answers, as "provider/model".
        behavior_template: its instructions: a template's name, or its text.
        tools: names of tools of the tool registry.
        render_policy: how its log is shown to the model; `None`: as it is.
        enable_self_reflection: whether `reflection_agent_id`, another agent, judges what it does.
    """

    type: Literal["llm"]
    id: str = Field(min_length=1, max_length=200)
    llm_model: str = "openai/gpt-4o"
    behavior_template: str | None = None
    tools: list[str] = Field(default_factory=list)
    render_policy: str | None = None
    enable_self_reflection: bool = False
    reflection_agent_id: str | None = None

    @field_validator("id")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if value != value.strip():
            raise ValueError("an agent's id neither begins nor ends with white space")
        return value

    @field_validator("llm_model")
    @classmethod
    def _provider_and_model(cls, value: str) -> str:
        provider, _, model = value.partition("/")
        if not provider.strip() or not model.strip():
            raise ValueError(f"write a model as provider/model, such as 'anthropic/claude-sonnet-5', not {value!r}")
        return value

    @model_validator(mode="after")
    def _somebody_reflects(self) -> LLMAgentConfig:
        if self.enable_self_reflection and not self.reflection_agent_id:
            raise ValueError("'enable_self_reflection' needs 'reflection_agent_id', the agent that judges")
        return self


class ToolConfig(Options):
    """What a function is as a tool; times in seconds.

    Args:
        input_schema: what the function takes, by keyword; without it, what its signature says.
        output_schema: what it gives; anything else is a failed call.
        post_effects: effects that follow each success, in this order, by the names that `register_effect` gave them.
        requires_context: whether the function takes a `context`, the `ToolContext` of the call.
        cache_ttl: how long a result is given again to the same call.
        side_effect_free: that a call changes nothing, so that it may begin early, come to nothing, and be repeated.
        dedup_ttl: how long after a success the same call is not run again; nor is it while the first one runs.
        reflect: whether the agent's reflection agent judges each success.
    """

    name: str
    description: str
    input_schema: type[BaseModel] | None = None
    output_schema: type[BaseModel] | None = None
    post_effects: list[str] | None = None
    requires_context: bool = False
    cache_ttl: int | None = Field(default=None, ge=0)
    side_effect_free: bool = False
    dedup_ttl: int | None = Field(default=None, ge=0)
    reflect: bool = False

    @field_validator("name")
    @classmethod
    def _callable_by_models(cls, value: str) -> str:
        if not _TOOL_NAME.fullmatch(value):
            raise ValueError(f"models call tools by up to 64 letters, digits, '_' and '-', not by {value!r}")
        return value
