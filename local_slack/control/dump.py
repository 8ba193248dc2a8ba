"""The workspace as text, for the output of failed tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local_slack.workspace.messages import Channel, Message
    from local_slack.workspace.workspace import Workspace

_LONGEST_LINE = 200


def dump(workspace: Workspace) -> str:
    """Return all channels with their messages; replies are indented under their root."""
    return "\n".join(line for channel in workspace.channels for line in _channel_lines(channel, workspace))


def _channel_lines(channel: Channel, workspace: Workspace) -> Iterator[str]:
    who = " and ".join(_name(user, workspace) for user in channel.members)
    messages = workspace.messages(channel.id)
    yield f"{f'direct message of {who}' if channel.is_im else f'#{channel.name}'} ({channel.id})"
    if not messages:
        yield "  (empty)"
    for root in messages:
        if not root.is_reply or workspace.message(channel.id, root.thread_ts or "") is None:
            yield from ("  " + _line(root, workspace),)
            below = workspace.thread(channel.id, root.ts)[1:]
            yield from ("    " + _line(reply, workspace) for reply in below)
    yield from ("  (only for one) " + _line(m, workspace) for m in workspace.whispers(channel.id))


def _line(message: Message, workspace: Workspace) -> str:
    text = message.text.replace("\n", "\\n")
    if len(text) > _LONGEST_LINE:
        text = f"{text[:_LONGEST_LINE]}… ({len(text)} characters)"
    edited = " (edited)" if message.edited else ""
    reactions = "".join(
        f"  :{r.name}: {','.join(_name(user, workspace) for user in r.users)}" for r in message.reactions
    )
    author = message.username or _name(message.user, workspace)
    return f"[{message.ts}] {author}: {text}{edited}{reactions}"


def _name(user: str, workspace: Workspace) -> str:
    member = workspace.directory.members.get(user)
    return member.name if member else user
