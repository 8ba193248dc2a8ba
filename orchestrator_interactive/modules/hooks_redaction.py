"""`hooks-redaction`: mask secrets and personal data in the events that `hooks-logging` writes.

The module of this name in the Amplifier project changes the events themselves, so that the model, too, reads masked
prompts and messages. That is the `scope` `all` here; by default only the log is masked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.interop import to_local_coordinator

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

# The capability that returns a masked copy of an event's data.
REDACT = "events.redact"

Rule = Literal["secrets", "pii-basic"]
_PATTERNS: dict[Rule, re.Pattern[str]] = {
    "secrets": re.compile(
        r"AKIA[0-9A-Z]{16}"  # an access key of AWS
        r"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}"  # tokens of Slack
        r"|AIza[\w-]{35}|gh[opsur]_\w{36,}|github_pat_\w{22,}|glpat-[\w-]{20,}"  # Google, GitHub, GitLab
        r"|sk-[\w-]{20,}"  # Anthropic, OpenAI and others
        # JSON Web Tokens. After other letters, the header has a limit: otherwise the time would be quadratic.
        r"|(?:(?<![\w-])eyJ[\w-]{10,}+|eyJ[\w-]{10,200}+)\.[\w-]{10,}+\.[\w-]{10,}"
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
        r"|(?i:(?<=\bbearer )[\w.~+/-]{16,}=*)"
    ),
    "pii-basic": re.compile(
        r"[\w.%+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}"  # e-mail addresses
        r"|(?<![\w.:-])\+?\d(?:[ ().-]{0,2}\d){7,14}(?![\w:-]|\.\d)"  # numbers of phones and cards
    ),
}
_MASKS: dict[Rule, str] = {"secrets": "[REDACTED:SECRET]", "pii-basic": "[REDACTED:PII]"}


class RedactionOptions(Options):
    """Options of `hooks-redaction`.

    Args:
        rules: the masked data: `secrets`, `pii-basic` (e-mail addresses, and numbers of phones and cards), or both.
        scope: `log`: only what `hooks-logging` writes; `all`: the events themselves, too, so that the model reads
            masked prompts and messages.
        allowlist: paths in the data of events that stay as they are, such as `usage` or `messages[0].content`.
        skip_events: with the scope `all`, events that are not changed, since tools need their data as they are.
        priority: with the scope `all`, the order among hooks; the lowest number is first.
    """

    rules: tuple[Rule, ...] = ("secrets", "pii-basic")
    scope: Literal["log", "all"] = "log"
    allowlist: frozenset[str] = frozenset({"session_id", "parent_id", "timestamp"})
    skip_events: frozenset[str] = frozenset({events.TOOL_PRE, events.TOOL_POST})
    priority: int = Field(default=10)

    def masked(self, value: Any, path: str = "") -> Any:
        """Return a copy of JSON data whose texts are masked."""
        if path in self.allowlist:
            return value
        match value:
            case str():
                for rule in self.rules:
                    value = _PATTERNS[rule].sub(_MASKS[rule], value)
                return value
            case dict():
                return {key: self.masked(each, f"{path}.{key}" if path else str(key)) for key, each in value.items()}
            case list() | tuple():
                return [self.masked(each, f"{path}[{place}]") for place, each in enumerate(value)]
        return value


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Register the capability `events.redact(data)` for `hooks-logging`, and with the scope `all` the hooks.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(RedactionOptions, config, "hooks-redaction")
    coordinator.register_capability(REDACT, options.masked)
    if options.scope == "log":
        return

    async def redact(_event: str, data: dict[str, Any]) -> HookResult:
        masked = options.masked(data)
        return HookResult() if masked == data else HookResult(action="modify", data=masked)

    for event in events.ALL_EVENTS:
        if event not in options.skip_events:
            coordinator.hooks.register(event, redact, priority=options.priority, name="hooks-redaction")
