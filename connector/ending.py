"""How a run ended, as its loop tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connector.lines import use_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """What became of a tool call.

    Args:
        label: what people read of it.
        outcome: `finished` or `failed`; `cancelled` where nothing was done; `unknown` where it was cut at work.
    """

    label: str
    outcome: str

    @classmethod
    def of(cls, told: dict[str, Any]) -> ToolEnd:
        return cls(told.get("label") or use_of(told["tool"]), told["outcome"])


@dataclass(frozen=True, slots=True)
class Ending:
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
    def of(cls, told: dict[str, Any]) -> Ending:
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
