"""Approval and display systems for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.models import Level


class ApprovalRequest(NamedTuple):
    """One approval request; `timeout` is in seconds."""

    prompt: str
    options: list[str]
    timeout: float
    default: Literal["allow", "deny"]


class MockApprovalSystem:
    """Approves every request, or always returns `answer`. `requests` records the requests."""

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
        """Return `answer` if it is set, else the first option that begins with "allow", else "Allow"."""
        self.requests.append(ApprovalRequest(prompt, list(options), timeout, default))
        if self.answer is not None:
            return self.answer
        return next((option for option in options if option.lower().startswith("allow")), "Allow")


class MockDisplaySystem:
    """Records shown messages in `messages` as (message, level, source) tuples."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Level, str]] = []

    def show_message(self, message: str, level: Level, source: str = "hook") -> None:
        self.messages.append((message, level, source))
