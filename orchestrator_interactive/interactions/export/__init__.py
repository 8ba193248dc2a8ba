"""Export a conversation as JSON lines, as text for a terminal, or as an HTML page.

`conversation` has the three formats. A `transcript` of `parts` is the common form for people; `plain_text` and `page`
(with its template) render it, and `readable` formats values for both.
"""

from __future__ import annotations

from orchestrator_interactive.interactions.export.conversation import as_json_lines, as_page, as_text

__all__ = ["as_json_lines", "as_page", "as_text"]
