"""Configuration and its defaults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import AliasChoices, ConfigDict, Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.modules.provider_anthropic.models import Prices  # noqa: TC001 - pydantic reads it
from orchestrator_interactive.modules.provider_base import ApiKey  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Mapping

# Not Sonnet 5.5, although it is newer: it returns the text between two tool calls as thinking, which users would not
# see, and binds thinking to the exact history, while conversations here are branched, rewound and compacted.
DEFAULT_MODEL = "claude-sonnet-5"
DEFAULT_BASE_URL = "https://api.anthropic.com"
LEAST_THINKING_TOKENS = 1024
# Budget of a call with `extended_thinking` if the configuration has none.
DEFAULT_THINKING_TOKENS = 10_000

_WITHOUT_EFFECT = """
    cache_infer_stability_from_history cache_stable_region_ttl_1h close_timeout computer_batch_actions
    computer_use_tool_type debug debug_truncate_length fallback_cooldown_seconds fallback_haiku_model fallback_models
    fallback_on_overload fallback_retry_count fallback_sonnet_model filtered max_concurrent_requests max_retry_delay
    overloaded_delay_multiplier persist_fallback_state raw_debug refusal_fallback_enabled refusal_fallback_model
    retry_jitter temperature thinking_budget_buffer thinking_display thinking_prefix_mismatch_behavior thinking_type
    throttle_delay throttle_threshold use_streaming
"""


class AnthropicConfig(Options):
    """Configuration of one mounted provider; times in seconds, sizes in tokens.

    `prices` apply to `model`. Without them, and for other models, the public prices apply. Second names are those of
    Amplifier's module of this name.
    """

    # The inputs contain the API key: error messages must not repeat them.
    model_config = ConfigDict(hide_input_in_errors=True)
    without_effect: ClassVar[frozenset[str]] = frozenset(_WITHOUT_EFFECT.split())

    api_key: ApiKey = Field(default="", repr=False)
    base_url: str = DEFAULT_BASE_URL
    model: str = Field(DEFAULT_MODEL, min_length=1, validation_alias=AliasChoices("model", "default_model"))
    max_output_tokens: int = Field(8192, ge=1, validation_alias=AliasChoices("max_output_tokens", "max_tokens"))
    context_window: int = Field(default=200_000, ge=1)
    enable_1m_context: bool = False
    thinking_budget_tokens: int | None = Field(default=None, ge=LEAST_THINKING_TOKENS)
    extended_thinking: bool | None = None
    reasoning_effort: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, validation_alias=AliasChoices("reasoning_effort", "effort")
    )
    max_retries: int = Field(default=3, ge=0)
    retry_base_delay_s: float = Field(1.0, ge=0, validation_alias=AliasChoices("retry_base_delay_s", "min_retry_delay"))
    timeout_s: float = Field(60.0, gt=0, validation_alias=AliasChoices("timeout_s", "timeout"))
    prompt_cache: bool = Field(True, validation_alias=AliasChoices("prompt_cache", "enable_prompt_caching"))
    prices: Prices | None = None
    priority: int = 100
    raw: bool = False
    inference_geo: str | None = None
    beta_headers: str | tuple[str, ...] = ()
    extra_request_params: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Validate a module configuration; key and address default to ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL.

        Raises:
            ValueError: an unknown key, or an invalid value; the message names it.
        """
        values = {key: value for key, value in config.items() if value is not None}
        values["api_key"] = values.get("api_key") or os.environ.get("ANTHROPIC_API_KEY", "")
        values["base_url"] = values.get("base_url") or os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_BASE_URL
        if values.get("enable_1m_context") in (True, "true"):
            values.setdefault("context_window", 1_000_000)
        return validate(cls, values, "provider-anthropic")

    @property
    def thinking_tokens(self) -> int | None:
        """Budget of thinking; `None` if it is off. A budget or an effort turns it on, unless it is turned off."""
        is_on = self.extended_thinking
        if is_on is None:
            is_on = (self.thinking_budget_tokens or self.reasoning_effort) is not None
        return (self.thinking_budget_tokens or DEFAULT_THINKING_TOKENS) if is_on else None

    def with_thinking(self) -> Self:
        """Return this configuration with thinking turned on."""
        return self.model_copy(update={"extended_thinking": True})
