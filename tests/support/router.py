"""Routes the events of the local Slack's Socket Mode, and records acknowledgements."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from local_slack import LocalSlack
from local_slack.delivery.delivery import Delivery
from local_slack.delivery.socket_mode import Connection

# A kind of event, and the ts at which it happened.
Event = tuple[str, str]


@dataclass(eq=False)
class RoutedConnection:
    """One connection of the app, as the delivery sees it; `events` were sent over it."""

    connection: Connection
    board: Router
    events: list[Event] = field(default_factory=list)

    def send(self, frame: str) -> None:
        envelope = json.loads(frame)
        event = envelope["payload"]["event"]
        name = (event["type"], event["event_ts"])
        self.events.append(name)
        self.board.note(envelope["envelope_id"], name)
        self.connection.send(frame)

    def cut(self) -> None:
        """Cut the connection, as a network does."""
        self.connection.abort()


class Router:
    """Is between the sockets of a workspace and its event delivery.

    `lines` are the connections that are open, in the order in which they came. `sent` and `acknowledged` have the time
    of the event loop at which that was so of an event for the first time.
    """

    def __init__(self, slack: LocalSlack) -> None:
        self._delivery: Delivery = slack.socket_mode.delivery
        self._events: dict[str, Event] = {}
        self._chosen: RoutedConnection | None = None
        self._changed = asyncio.Event()
        self.lines: list[RoutedConnection] = []
        self.sent: dict[Event, float] = {}
        self.acknowledged: dict[Event, float] = {}
        slack.socket_mode.delivery = self  # type: ignore[assignment]  # it does what that does

    async def connected(self, count: int, within_s: float = 30) -> RoutedConnection:
        """Wait until that many connections are open; returns the latest."""
        async with asyncio.timeout(within_s):
            while len(self.lines) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.lines[-1]

    async def heard(self, event: Event, within_s: float = 30) -> float:
        """Wait until an event is acknowledged; returns when it was."""
        async with asyncio.timeout(within_s):
            while event not in self.acknowledged:
                self._changed.clear()
                await self._changed.wait()
        return self.acknowledged[event]

    def choose(self, line: RoutedConnection | None) -> None:
        """Send events over this connection only. None: over all connections in turn."""
        self._chosen = line
        for each in self.lines:
            self._delivery.detach(each)
        for each in self.lines:
            if line in (None, each):
                self._delivery.attach(each)

    def note(self, envelope_id: str, event: Event) -> None:
        self._events[envelope_id] = event
        self.sent.setdefault(event, asyncio.get_running_loop().time())

    # The interface of the sockets.

    @property
    def outstanding(self) -> int:
        return self._delivery.outstanding

    def attach(self, connection: Connection) -> None:
        line = RoutedConnection(connection, self)
        self.lines.append(line)
        if self._chosen is None:
            self._delivery.attach(line)
        self._changed.set()

    def detach(self, connection: Connection) -> None:
        for line in [line for line in self.lines if line.connection is connection]:
            self.lines.remove(line)
            self._delivery.detach(line)
        self._changed.set()

    def acknowledge(self, envelope_id: str, payload: object = None) -> None:
        event = self._events.get(envelope_id)
        if event is not None:
            self.acknowledged.setdefault(event, asyncio.get_running_loop().time())
        self._delivery.acknowledge(envelope_id, payload)
        self._changed.set()

    def offer(self, envelope: Any) -> None:
        self._delivery.offer(envelope)

    def close(self) -> None:
        self._delivery.close()
