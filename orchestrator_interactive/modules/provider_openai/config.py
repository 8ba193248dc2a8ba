"""Configuration and its defaults."""

from __future__ import annotations

import os
from decimal import Decimal  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.modules.provider_base import ApiKey  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_MILLION = 1_000_000

# Of Amplifier's modules provider-openai and provider-chat-completions.
_WITHOUT_EFFECT = """
    debug debug_truncate_length enable_native_tools enable_reasoning_replay enable_state filtered max_retry_delay
    overloaded_delay_multiplier raw_debug reasoning reasoning_summary retry_jitter truncation use_streaming
"""


class Prices(BaseModel):
    """US dollars per million tokens. Tokens from a cache cost as much as others unless `cache_read` is set."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cache_read: Decimal | None = Field(default=None, ge=0)

    def cost_usd(self, read: int, written: int, cached: int) -> Decimal:
        """Return the cost of a call; `cached` of the `read` tokens came from a cache."""
        of_cached = self.input if self.cache_read is None else self.cache_read
        return ((read - cached) * self.input + cached * of_cached + written * self.output) / _MILLION


class OpenAIConfig(Options):
    """Configuration of one mounted provider; times in seconds, sizes in tokens.

    Args:
        base_url: address of the API, such as `http://127.0.0.1:8000/v1` of a local server, which needs no key.
        max_tokens_field: name of the limit of an answer in requests; by default `max_completion_tokens` for OpenAI, and
            `max_tokens` for other servers.
        sends_reasoning: send the model's reasoning back to it; by default only in messages with tool calls, where
            DeepSeek requires it. Its older models refuse it elsewhere.
        sees_images: send images to the model; by default until the server refuses one.
        stream_usage: ask for the usage in the stream; a few servers reject that.
        prices: of the model; without them the cost of a call is unknown.
        raw: the events of calls have the whole request and answer.
    """

    # The inputs contain the API key: error messages must not repeat them.
    model_config = ConfigDict(hide_input_in_errors=True)
    without_effect: ClassVar[frozenset[str]] = frozenset(_WITHOUT_EFFECT.split())

    api_key: ApiKey = Field(default="", repr=False)
    base_url: str = DEFAULT_BASE_URL
    organization: str = ""
    project: str = ""
    model: str = Field(min_length=1, validation_alias=AliasChoices("model", "default_model"))
    max_output_tokens: int = Field(8192, ge=1, validation_alias=AliasChoices("max_output_tokens", "max_tokens"))
    max_tokens_field: str | None = None
    context_window: int = Field(default=128_000, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    reasoning_effort: str | None = None
    sends_reasoning: bool | None = None
    sees_images: bool | None = None
    stream_usage: bool = True
    max_retries: int = Field(default=3, ge=0)
    retry_base_delay_s: float = Field(1.0, ge=0, validation_alias=AliasChoices("retry_base_delay_s", "min_retry_delay"))
    timeout_s: float = Field(60.0, gt=0, validation_alias=AliasChoices("timeout_s", "timeout"))
    prices: Prices | None = None
    priority: int = 100
    raw: bool = False
    extra_request_params: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Validate a module configuration; key, address and model default to OPENAI_API_KEY, …_BASE_URL and …_MODEL.

        The key of the environment is only for the address of the environment or OpenAI's.

        Raises:
            ValueError: an unknown key, or an invalid value; the message names it.
        """
        values = {key: value for key, value in config.items() if value is not None}
        if not values.get("base_url"):
            values["base_url"] = os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL
            values["api_key"] = values.get("api_key") or os.environ.get("OPENAI_API_KEY", "")
        if values.keys().isdisjoint({"model", "default_model"}) and (model := os.environ.get("OPENAI_MODEL")):
            values["model"] = model
        return validate(cls, values, "provider-openai")

    @property
    def is_openai(self) -> bool:
        """Whether it is the API of OpenAI itself or of Azure, with OpenAI's limits and a key."""
        return f".{urlsplit(self.base_url).hostname}".endswith((".openai.com", ".azure.com"))

    @property
    def limit_field(self) -> str:
        return self.max_tokens_field or ("max_completion_tokens" if self.is_openai else "max_tokens")

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, base_url: str) -> str:
        found = urlsplit(base_url)
        if found.scheme not in {"http", "https"} or not found.hostname:
            raise ValueError("must be an address such as http://127.0.0.1:8000/v1")
        return base_url
