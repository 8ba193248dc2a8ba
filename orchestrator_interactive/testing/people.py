"""The people at the other end of a session: who is asked for approval, and who reads what hooks say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.models import Level


class ApprovalRequest(NamedTuple):
    """One question; `timeout` is in seconds."""

    prompt: str
    options: list[str]
    timeout: float
    default: Literal["allow", "deny"]


class MockApprovalSystem:
    """Approves, or gives always the same `answer`. `requests` keeps what was asked."""

    def __init__(self, answer: str | None = None) -> None:
        self.answer = answer
        self.requests: list[ApprovalRequest] = []

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - the contract's name
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the answer; where none is set, the first option that allows, or "Allow" where none does."""
        self.requests.append(ApprovalRequest(prompt, list(options), timeout, default))
        if self.answer is not None:
            return self.answer
        return next((option for option in options if option.lower().startswith("allow")), "Allow")


class MockDisplaySystem:
    """Keeps what was shown in `messages`, as (message, level, source) tuples."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Level, str]] = []

    def show_message(self, message: str, level: Level, source: str = "hook") -> None:
        self.messages.append((message, level, source))
