"""Notes from code in the service's process: listeners, tools, and other code of a deployment."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.notes import admit_note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from connector.notes import Admit
    from orchestrator_interactive.interactions.records import Key


_inboxes: list[Notes] = []


async def notify(instance: str, conversation: str, text: str, note_id: str | None = None) -> None:
    """Post a note in a conversation, and let the next run of this instance there read it.

    The note is durable on return: it survives restarts, and another replica can post it. It starts no run, and the
    active run does not read it. `conversation` is `team:channel:thread_ts`, or `team:channel:dm` for a whole direct
    message channel. A second call with the same `note_id` has no effect. If Slack does not let the bot post there, the
    log reports it (`slack.call_failed`).

    Raises:
        RuntimeError: no service runs in this process.
        ValueError: the text is blank or longer than 4,000 characters, the conversation's id is invalid, or there is no
            such instance.
        StoreError: the note cannot be stored.
    """
    if not _inboxes:
        raise RuntimeError("No service runs in this process; use `amplifier-slack conversations notify`.")
    await _inboxes[-1].store(instance, conversation, text, note_id)


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of a running service: the function that admits inbox entries, and the names of the instances."""

    admit: Admit
    instances: Sequence[str]

    @contextmanager
    def offered(self) -> Iterator[None]:
        """Let `notify` store notes while the context is open."""
        _inboxes.append(self)
        try:
            yield
        finally:
            _inboxes.remove(self)

    async def of_session(self, key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Store a note by a session for its own conversation: a host function with `text` and, optionally, `id`."""
        await self.store(key.agent_id, key.conversation_id, arguments["text"], arguments.get("id"))
        return {}

    async def store(self, instance: str, conversation: str, text: str, note_id: str | None = None) -> None:
        """Store a note.

        Raises:
            ValueError, StoreError: as in `notify`.
        """
        if instance not in self.instances:
            raise ValueError(f"There is no instance {instance!r}; there are: {', '.join(self.instances)}.")
        await admit_note(self.admit, instance, conversation, text, note_id)
