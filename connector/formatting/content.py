"""The content of a Slack message."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Content:
    """A message's text, and the blocks that Slack shows instead of it, if any."""

    text: str
    blocks: tuple[dict[str, Any], ...] = ()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `chat.postMessage` and `chat.update`."""
        return {"text": self.text, "blocks": json.dumps(self.blocks)} if self.blocks else {"text": self.text}
