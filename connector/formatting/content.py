"""What a message says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Content:
    """A message's text, and the blocks that are shown in its place where there are any."""

    text: str
    blocks: tuple[dict[str, Any], ...] = ()

    def arguments(self) -> dict[str, Any]:
        """As arguments of `chat.postMessage` and `chat.update`."""
        return {"text": self.text, "blocks": json.dumps(self.blocks)} if self.blocks else {"text": self.text}
