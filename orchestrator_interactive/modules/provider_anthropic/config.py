"""Configuration and its defaults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from orchestrator_interactive.modules.provider_anthropic.models import Prices  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Mapping

# Not Sonnet 5.5, although it is newer: it returns the text between two tool calls as thinking, which users would not
# see, and binds thinking to the exact history, while conversations here are branched, rewound and compacted.
DEFAULT_MODEL = "claude-sonnet-5"
DEFAULT_BASE_URL = "https://api.anthropic.com"
LEAST_THINKING_TOKENS = 1024
# Budget of a call with `extended_thinking` if the configuration has none.
DEFAULT_THINKING_TOKENS = 10_000


class AnthropicConfig(BaseModel):
    """Configuration of one mounted provider; times in seconds, sizes in tokens.

    `prices` apply to `model`. Without them, and for other models, the public prices apply.
    """

    # The inputs contain the API key: error messages must not repeat them.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    api_key: str = Field(default="", repr=False)
    base_url: str = DEFAULT_BASE_URL
    model: str = Field(default=DEFAULT_MODEL, min_length=1)
    max_output_tokens: int = Field(default=8192, ge=1)
    context_window: int = Field(default=200_000, ge=1)
    thinking_budget_tokens: int | None = Field(default=None, ge=LEAST_THINKING_TOKENS)
    max_retries: int = Field(default=3, ge=0)
    retry_base_delay_s: float = Field(default=1.0, ge=0)
    timeout_s: float = Field(default=60.0, gt=0)
    prompt_cache: bool = True
    prices: Prices | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Validate a module configuration; key and address default to ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL.

        Raises:
            ValueError: an unknown key, or an invalid value; the message names it.
        """
        if unknown := sorted(set(config) - set(cls.model_fields)):
            raise ValueError(
                f"provider-anthropic does not know the configuration key {', '.join(map(repr, unknown))}. "
                f"It knows: {', '.join(cls.model_fields)}."
            )
        values = {key: value for key, value in config.items() if value is not None}
        values["api_key"] = values.get("api_key") or os.environ.get("ANTHROPIC_API_KEY", "")
        values["base_url"] = values.get("base_url") or os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_BASE_URL
        try:
            return cls.model_validate(values)
        except ValidationError as e:
            problems = "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in e.errors())
            raise ValueError(f"The configuration of provider-anthropic is invalid: {problems}.") from e

    def with_thinking(self) -> Self:
        """Return this configuration with a thinking budget: its own, or the default."""
        tokens = self.thinking_budget_tokens or DEFAULT_THINKING_TOKENS
        return self.model_copy(update={"thinking_budget_tokens": tokens})

    @field_validator("api_key")
    @classmethod
    def _one_printable_word(cls, api_key: str) -> str:
        api_key = api_key.strip()
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
            raise ValueError("the API key contains invalid characters; was it copied completely?")
        return api_key
