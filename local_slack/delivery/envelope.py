"""One delivery to the app: an event or a click, over either transport."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event or a click; ``attempt`` counts from 0, ``reason`` is the reason of the retry."""

    id: str
    type: str
    payload: Mapping[str, Any]
    attempt: int = 0
    reason: str = ""
    accepts_response_payload: bool = False

    @property
    def about(self) -> str:
        """Return the type of the payload, such as ``app_mention`` or ``block_actions``."""
        event = self.payload.get("event")
        return str((event if isinstance(event, dict) else self.payload).get("type", self.type))

    @property
    def retried(self) -> bool:
        """Return whether it is repeated without an ack: events are; a click fails at once."""
        return self.type == "events_api"

    def frame(self) -> str:
        return json.dumps(
            {
                "envelope_id": self.id,
                "type": self.type,
                "payload": self.payload,
                "accepts_response_payload": self.accepts_response_payload,
                "retry_attempt": self.attempt,
                "retry_reason": self.reason,
            }
        )

    def again(self, reason: str) -> Envelope:
        return replace(self, attempt=self.attempt + 1, reason=reason)
