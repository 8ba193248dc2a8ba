"""Values that modules return to the kernel: tool results, hook results, provider metadata; and the session status.

Field names are those of `amplifier_core.models`.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock  # noqa: TC001 - pydantic reads them

# C0 and C1 control characters except tab, newline and carriage return, and lone surrogates: providers refuse them.
_UNSENDABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def sendable(text: str) -> str:
    """Drop the characters that provider APIs refuse or fail on."""
    return _UNSENDABLE.sub("", text)


class ToolResult(BaseModel):
    """Result of a tool call. With `success=False` the model reads `output`, or `error["message"]` if that is empty.

    `content` holds results with images; the model reads it instead of `output`. `is_error=True` is another form of
    `success=False`.
    """

    success: bool = True
    output: Any | None = None
    error: dict[str, Any] | None = None
    content: list[TextBlock | ImageBlock] | None = None
    is_error: bool = Field(default=False, exclude=True)

    def model_post_init(self, _context: Any, /) -> None:
        if self.is_error:
            self.success = False
        if not self.success and self.output is None and self.error:
            self.output = self.error.get("message")

    def __str__(self) -> str:
        return self.get_serialized_output()

    def get_serialized_output(self) -> str:
        """Return the output as text for the model: JSON for structures, plain text otherwise; never empty."""
        if isinstance(self.output, dict | list):
            return sendable(json.dumps(self.output, default=str, ensure_ascii=False))
        if self.output is not None and (text := sendable(str(self.output))):
            return text
        if self.success:
            return "Success"
        return f"Error: {(self.error or {}).get('message', 'the tool failed')}"


HookAction = Literal["continue", "deny", "modify", "inject_context", "ask_user"]
InjectionRole = Literal["system", "user", "assistant"]
Level = Literal["info", "warning", "error"]


class ContextInjection(BaseModel):
    """A text that a hook adds for the model, with its role and position."""

    content: str
    role: InjectionRole = "system"
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    hook_name: str = "unknown"
    event: str = ""


class HookResult(BaseModel):
    """Result of a hook. `approval_timeout` is in seconds.

    `context_injection` applies only with the action `inject_context`. `modify` carries the changed event data in
    `data`; later handlers get it. `ephemeral` injections are in the next request only, not in the history;
    `append_to_last_tool_result` appends one to the tool result at the end of that request, if there is one. The
    registry sets `hook_name`, and `context_injections` if several hooks inject.
    """

    model_config = ConfigDict(frozen=True)

    action: HookAction = "continue"
    data: dict[str, Any] | None = None
    reason: str | None = None
    context_injection: str | None = None
    context_injection_role: InjectionRole = "system"
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    context_injections: list[ContextInjection] = Field(default_factory=list)
    approval_prompt: str | None = None
    approval_options: list[str] | None = None
    approval_timeout: float = 300.0
    approval_default: Literal["allow", "deny"] = "deny"
    suppress_output: bool = False
    user_message: str | None = None
    user_message_level: Level = "info"
    user_message_source: str | None = None
    hook_name: str = "unknown"

    def injections(self) -> list[ContextInjection]:
        """Return the injections in order: those of `inject_context`, or those that other hooks add to `ask_user`."""
        if self.action == "ask_user":
            return self.context_injections
        if self.action != "inject_context":
            return []
        if self.context_injections or not self.context_injection:
            return self.context_injections
        one = ContextInjection(
            content=self.context_injection,
            role=self.context_injection_role,
            ephemeral=self.ephemeral,
            append_to_last_tool_result=self.append_to_last_tool_result,
            hook_name=self.hook_name,
        )
        return [one]


class ModelInfo(BaseModel):
    id: str
    display_name: str
    context_window: int
    max_output_tokens: int
    capabilities: list[str] = Field(default_factory=list)
    defaults: dict[str, Any] = Field(default_factory=dict)


class ProviderInfo(BaseModel):
    """Metadata of a provider.

    `defaults` may contain `context_window` and `max_output_tokens` (tokens); contexts compute their budget from them.
    With the capability `"tool_choice"` the provider honours `ChatRequest.tool_choice`.
    """

    id: str
    display_name: str
    credential_env_vars: list[str] = Field(default_factory=list)
    capabilities: list[str] = Field(default_factory=list)
    defaults: dict[str, Any] = Field(default_factory=dict)
    config_fields: list[dict[str, Any]] = Field(default_factory=list)


class SessionStatus(BaseModel):
    session_id: str
    started_at: datetime = Field(default_factory=lambda: datetime.now().astimezone())
    ended_at: datetime | None = None
    status: Literal["running", "completed", "failed", "cancelled"] = "running"
    last_error: dict[str, Any] | None = None
