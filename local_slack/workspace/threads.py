"""The thread summary of a root message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.workspace.messages import Body, Message, Thread

if TYPE_CHECKING:
    from collections.abc import Sequence

DELETED_TEXT = "This message was deleted."
SLACKBOT = "USLACKBOT"


def counted(root: Message, replies: Sequence[Message]) -> Message:
    """Return the root with the summary of ``replies``, which are ordered oldest first."""
    if not replies and not root.tombstone:
        return replace(root, thread=None, thread_ts=None)
    users = tuple(dict.fromkeys(reply.user for reply in replies))
    latest = replies[-1].ts if replies else "0000000000.000000"
    return replace(root, thread_ts=root.ts, thread=Thread(len(replies), users, latest))


def tombstone(root: Message) -> Message:
    """Return the tombstone of a deleted root whose replies remain."""
    return Message(
        channel=root.channel,
        ts=root.ts,
        user=SLACKBOT,
        body=Body(DELETED_TEXT),
        thread_ts=root.ts,
        parent_user=SLACKBOT,
        thread=root.thread,
        tombstone=True,
    )
