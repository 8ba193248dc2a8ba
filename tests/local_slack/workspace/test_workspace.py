"""After any steps of people the workspace is consistent, and its events describe all changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from local_slack import SlackRefused, Workspace
from local_slack.delivery.events import event_of
from local_slack.workspace.messages import Body
from local_slack.workspace.people import Directory

ACTIONS = st.sampled_from(["post", "reply", "broadcast", "edit", "delete", "react", "unreact"])
STEPS = st.lists(st.tuples(ACTIONS, st.sampled_from(["ana", "ben", "alpha"]), st.integers(0, 8)), max_size=40)


class Observer:
    """Rebuilds texts and reactions from the events, as a client does."""

    def __init__(self, workspace):
        self.texts: dict[str, str] = {}
        self.reactions: set[tuple[str, str, str]] = set()
        self._workspace = workspace
        workspace.listen(self._on_change)

    def _on_change(self, change):
        event = event_of(change, self._workspace)
        match event:
            case {"subtype": "message_changed", "message": {"ts": ts, "text": text, **rest}}:
                self.texts[ts] = text
                if rest.get("subtype") == "tombstone":
                    self._forget(ts)
            case {"subtype": "message_deleted", "deleted_ts": ts}:
                del self.texts[ts]
                self._forget(ts)
            case {"type": "message", "ts": ts, "text": text}:
                self.texts[ts] = text
            case {"type": "reaction_added", "user": user, "reaction": name, "item": {"ts": ts}}:
                self.reactions.add((ts, user, name))
            case {"type": "reaction_removed", "user": user, "reaction": name, "item": {"ts": ts}}:
                self.reactions.remove((ts, user, name))

    def _forget(self, ts):
        self.reactions = {reaction for reaction in self.reactions if reaction[0] != ts}


def perform(workspace, step, number):
    """Apply a step to the message at a position (modulo their number); a refused step changes nothing."""
    action, name, position = step
    member = workspace.directory.named(name)
    messages = workspace.messages("general")
    ts = messages[position % len(messages)].ts if messages else "1700000000.000100"
    actions: dict[str, Any] = {
        "post": lambda: workspace.post("general", member, Body(f"text {number}")),
        "reply": lambda: workspace.post("general", member, Body(f"text {number}"), thread_ts=ts),
        "broadcast": lambda: workspace.post("general", member, Body("all"), thread_ts=ts, broadcast=True),
        "edit": lambda: workspace.edit("general", ts, member, Body(f"edit {number}")),
        "delete": lambda: workspace.delete("general", ts, member),
        "react": lambda: workspace.react("general", ts, member, "eyes", add=True),
        "unreact": lambda: workspace.react("general", ts, member, "eyes", add=False),
    }
    try:
        actions[action]()
    except SlackRefused:
        assert workspace.messages("general") == messages


def assert_consistent(messages):
    assert [m.ts for m in messages] == sorted({m.ts for m in messages})
    by_ts = {m.ts: m for m in messages}
    for message in messages:
        replies = [m for m in messages if m.thread_ts == message.ts and m.is_reply]
        assert message.reply_count == len(replies)
        if message.is_reply:
            assert not by_ts[message.thread_ts or ""].is_reply
        if message.tombstone:
            assert replies
        if message.thread:
            assert message.thread.latest_reply == replies[-1].ts
            assert set(message.thread.reply_users) == {m.user for m in replies}


@given(STEPS)
def test_threads_are_consistent_and_can_be_rebuilt_from_the_events(steps):
    workspace = Workspace(Directory("alpha", ("ana", "ben")), ("general",), clock=lambda: 1_700_000_000.0)
    observer = Observer(workspace)
    for number, step in enumerate(steps):
        perform(workspace, step, number)
        assert_consistent(workspace.messages("general"))
    messages = workspace.messages("general")
    assert observer.texts == {m.ts: m.text for m in messages}
    assert observer.reactions == {(m.ts, u, r.name) for m in messages for r in m.reactions for u in r.users}
