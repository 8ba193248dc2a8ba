"""How a run ended, as its loop tells."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from connector.formatting.text_utils import use_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY_CHARS = 12


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """What became of a tool call.

    Args:
        label: what people read of it.
        outcome: `finished` or `failed`; `cancelled` where nothing was done; `unknown` where it was cut at work.
        id: of the call; blank where it was not told.
    """

    label: str
    outcome: str
    id: str = ""

    @classmethod
    def of(cls, told: dict[str, Any]) -> ToolEnd:
        return cls(told.get("label") or use_of(told["tool"]), told["outcome"], told.get("id") or "")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run ended: the `complete` event, or what holds where none has come.

    Args:
        status: success, incomplete, cancelled, suspended or error.
        part: the number of its answer among its texts; `None`: it has not told.
        reason: why it is incomplete; `detail` is what the model's service says of it.
        tools: what became of its tool calls.
        usage: the tokens that it used up and what they cost, for the log.
    """

    status: str = "error"
    reason: str | None = None
    detail: str | None = None
    part: int | None = None
    tools: tuple[ToolEnd, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, told: dict[str, Any]) -> RunSummary:
        return cls(
            status=told.get("status", "success"),
            reason=told.get("reason"),
            detail=told.get("detail"),
            part=told.get("part"),
            tools=tuple(ToolEnd.of(tool) for tool in told.get("tools", ())),
            usage=told.get("usage", {}),
        )

    def labels(self, outcome: str) -> list[str]:
        """The tool calls that came to this end."""
        return [tool.label for tool in self.tools if tool.outcome == outcome]


@dataclass(frozen=True, slots=True)
class ResumeSummary:
    """What people must know of a run that goes on after its process died: the `resumed` event.

    Args:
        unknown: the calls of which nobody knows what they did, in the order in which they were made.
    """

    unknown: tuple[ToolEnd, ...]

    @classmethod
    def of(cls, told: dict[str, Any]) -> ResumeSummary:
        calls = told.get("tools")
        if calls is None:  # an orchestrator that knows only what they are called
            return cls(tuple(ToolEnd(label, "unknown") for label in told.get("unknown", ())))
        return cls(tuple(ToolEnd.of(call) for call in calls))

    @property
    def labels(self) -> list[str]:
        return [call.label for call in self.unknown]

    @property
    def key(self) -> str:
        """What tells it from another one, of the same run, that has other calls."""
        calls = json.dumps([call.id or call.label for call in self.unknown])
        return sha256(calls.encode()).hexdigest()[:_KEY_CHARS]
