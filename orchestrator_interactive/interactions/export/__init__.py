"""A conversation to take along: as JSON lines, as text for a terminal, and as one page for a browser.

`conversation` has the three forms. A `transcript` of `parts` is what people read: `plain_text` in a terminal, `page` in
a browser by the template beside it; `readable` is how values are shown in both.
"""

from __future__ import annotations

from orchestrator_interactive.interactions.export.conversation import as_json_lines, as_page, as_text

__all__ = ["as_json_lines", "as_page", "as_text"]
