"""The result of a run, parsed from its `complete` and `resumed` events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from connector.formatting.content import use_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY_CHARS = 12


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """The outcome of a tool call.

    Args:
        label: description for people.
        outcome: `finished`, `failed`, `cancelled` (no effect), or `unknown` (cancelled while running).
        id: id of the call; blank: unknown.
    """

    label: str
    outcome: str
    id: str = ""

    @classmethod
    def of(cls, data: dict[str, Any]) -> ToolEnd:
        return cls(data.get("label") or use_of(data["tool"]), data["outcome"], data.get("id") or "")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of a run: the `complete` event, or the defaults if there was none.

    Args:
        status: success, incomplete, cancelled, suspended or error.
        part: number of its answer among its texts; `None`: not reported.
        reason: why it is incomplete; `detail` is the provider's explanation.
        tools: outcomes of its tool calls.
        usage: tokens and cost, for the log.
    """

    status: str = "error"
    reason: str | None = None
    detail: str | None = None
    part: int | None = None
    tools: tuple[ToolEnd, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: dict[str, Any]) -> RunSummary:
        return cls(
            status=data.get("status", "success"),
            reason=data.get("reason"),
            detail=data.get("detail"),
            part=data.get("part"),
            tools=tuple(ToolEnd.of(tool) for tool in data.get("tools", ())),
            usage=data.get("usage", {}),
        )

    def labels(self, outcome: str) -> list[str]:
        """Return the labels of the tool calls with this outcome."""
        return [tool.label for tool in self.tools if tool.outcome == outcome]


@dataclass(frozen=True, slots=True)
class ResumeSummary:
    """The `resumed` event of a run that resumes after its process died.

    Args:
        unknown: the calls of unknown outcome, in call order.
    """

    unknown: tuple[ToolEnd, ...]

    @classmethod
    def of(cls, data: dict[str, Any]) -> ResumeSummary:
        calls = data.get("tools")
        if calls is None:  # the orchestrator reports only labels
            return cls(tuple(ToolEnd(label, "unknown") for label in data.get("unknown", ())))
        return cls(tuple(ToolEnd.of(call) for call in calls))

    @property
    def labels(self) -> list[str]:
        return [call.label for call in self.unknown]

    @property
    def key(self) -> str:
        """A key that differs between resumptions of one run with different unknown calls."""
        calls = json.dumps([call.id or call.label for call in self.unknown])
        return sha256(calls.encode()).hexdigest()[:_KEY_CHARS]
