"""Notes that hooks add to a conversation once: files, and the memory of a channel.

A note is a row of its own in the log. Its first line has a digest of the text, so that a restart, a branch and a
compaction show by themselves whether the model has read its present form.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.transcript.framing import indented, plain_name
from orchestrator_interactive.transcript.rows import is_of_hook, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGEST_CHARS = 8


def note(title: str, about: str, text: str) -> str:
    """Return a note: a title in brackets, a sentence about it, and an indented text that cannot imitate a message."""
    digest = sha256(text.encode(errors="replace")).hexdigest()[:_DIGEST_CHARS]
    return f"[{plain_name(title)} · {digest}] {about}\n  {indented(text)}"


def unread(notes: Iterable[str], rows: Iterable[dict[str, Any]]) -> HookResult:
    """Return a hook result that adds the notes which none of the rows is."""
    # A row has all notes that were new at once; their texts are indented, so other lines are no first lines of notes.
    read = {line for row in rows if is_of_hook(row) for line in text_of(row).split("\n") if not line.startswith(" ")}
    new = [each for each in dict.fromkeys(notes) if each.partition("\n")[0] not in read]
    if not new:
        return HookResult()
    return HookResult(action="inject_context", context_injection="\n".join(new), context_injection_role="user")
