"""Configuration of agents and tools, and the errors of their registries; each message has the remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from orchestrator_interactive.config import Options

if TYPE_CHECKING:
    from collections.abc import Iterable

# Tool names that the providers' APIs accept.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class _Config(Options):
    """Options that are also accepted by position, in the order of the fields."""

    def __init__(self, *values: Any, **named: Any) -> None:
        kind = type(self)
        given = dict(zip(kind.model_fields, values, strict=False))
        twice = sorted(given.keys() & named.keys())
        if twice or len(values) > len(given):
            problem = f"{twice[0]!r} is given twice" if twice else f"{len(values)} positional arguments are too many"
            raise TypeError(f"{kind.__name__}: {problem}; the fields are, in order: {', '.join(kind.model_fields)}.")
        super().__init__(**given, **named)


class LLMAgentConfig(_Config):
    """Configuration of an agent driven by a language model.

    Args:
        id: unique name of the agent.
        llm_model: provider and model, as "provider/model".
        behavior_template: instructions: the name or the text of a template.
        tools: names of tools in the tool registry.
        render_policy: policy that renders the log for the model; `None`: unchanged.
        enable_self_reflection: whether the agent `reflection_agent_id` judges its results.
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


class ToolConfig(_Config):
    """Configuration of a function as a tool; times in seconds.

    Args:
        input_schema: the function's keyword arguments; default: its signature.
        output_schema: schema of the output; any other output is a failed call.
        post_effects: effects that run after each success, in this order, by their names in `register_effect`.
        requires_context: whether the function takes a `context`, the `ToolContext` of the call.
        cache_ttl: lifetime of a cached result.
        side_effect_free: whether a call changes nothing, so that it may begin early, be discarded and be repeated.
        dedup_ttl: like `cache_ttl`, and identical calls that overlap share one execution.
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


class RegistryError(Exception):
    """Base class of the registries' errors."""


class AlreadyRegistered(RegistryError):  # noqa: N818 - a fact about the registry
    """The name is taken."""


class NotRegistered(RegistryError, LookupError):  # noqa: N818
    """The name is unknown."""


class AgentStopped(RegistryError):  # noqa: N818 - a fact about the agent
    """The session that an agent works for was stopped; the message is the text that the agent has written so far."""


def not_registered(kind: str, name: str, there: Iterable[str]) -> NotRegistered:
    known = ", ".join(sorted(there)) or "none"
    return NotRegistered(f"There is no {kind} '{name}'. Registered: {known}.")
