"""A Slack workspace with the bot in it; the test controls the runs of the bot."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from fake_sessions import FakeRun, FakeSessionManager
from slack_environment import Hold

from connector import Instance, Persona
from local_slack import BlockUntil, Fault, LocalSlack, PersonClient, WorkspaceMessage
from local_slack.delivery.delivery import Envelope

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
BETA = Instance("beta", Persona("Beta", ":fox_face:"))
HOURGLASS, ENVELOPE, EYES = "hourglass_flowing_sand", "incoming_envelope", "eyes"
ONE_PENDING = "1 message has not been read yet. I will read it with your next message."

_numbers = count(1)


@dataclass
class Chat:
    """The workspace as people see it, and the runs that the bot starts."""

    slack: LocalSlack
    sessions: FakeSessionManager
    holds: list[Hold] = field(default_factory=list)

    @property
    def ana(self) -> PersonClient:
        return self.slack.as_person("ana")

    @property
    def ben(self) -> PersonClient:
        return self.slack.as_person("ben")

    @property
    def general(self) -> str:
        return self.slack.channel("general").id

    def fail(self, method: str, fault: Fault, times: int = 1) -> None:
        """Make the next calls of a method fail."""
        self.slack.faults.next(method, fault, times=times)

    def hold(self, method: str, times: int = 1) -> Hold:
        """Hold the next calls of a method until the event is set."""
        self.holds.append(Hold())
        self.fail(method, BlockUntil(self.holds[-1]), times)
        return self.holds[-1]

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [entry for entry in self.slack.record if entry.get("method") == method]

    async def start(self, text: str = "@alpha look", channel: str = "general") -> Thread:
        """Post a message that starts a run."""
        thread = Thread(self, await self.ana.say(channel, text), channel)
        thread.run = await self.sessions.next_run()
        return thread

    async def start_shown(self, text: str = "@alpha look") -> Thread:
        """Post a message that starts a run, and wait for its status message and ⏳."""
        thread = await self.start(text)
        await thread.status()
        await thread.marked(thread.ts, HOURGLASS)
        return thread

    async def say(self, text: str, channel: str = "general") -> Thread:
        """Post a message outside of threads."""
        return Thread(self, await self.ana.say(channel, text), channel)

    async def acknowledged(self, within_s: float = 10) -> None:
        """Wait until the bot has acknowledged every event."""
        await self.slack.until(lambda _: not self.slack.socket_mode.delivery.outstanding, within_s)

    async def starts_next(self, prompt: str = "elsewhere") -> FakeRun:
        """Check that the next run is one that begins now with this prompt, so that nothing has started one before."""
        await self.acknowledged()
        await self.ana.say("random", f"@alpha {prompt}")
        run = await self.sessions.next_run()
        assert run.prompt == prompt
        return run

    def posted(self, ts: str, text: str, **fields: Any) -> dict[str, Any]:
        """Return the `message` event of one of Ana's posts."""
        user, channel = self.slack.person("ana").id, self.general
        return {"type": "message", "user": user, "text": text, "ts": ts, "event_ts": ts, "channel": channel, **fields}

    def deliver(self, event: object, **more: Any) -> str:
        """Deliver an event to the bot, apart from what happens in the workspace. Returns the id of the envelope."""
        payload = {"type": "event_callback", "team_id": self.slack.team_id, "event": event, **more}
        return self.deliver_payload(payload)

    def deliver_payload(self, payload: dict[str, Any], kind: str = "events_api") -> str:
        envelope = Envelope(f"test-{next(_numbers)}", kind, payload)
        self.slack.socket_mode.delivery.offer(envelope)
        return envelope.id


@dataclass
class Thread:
    """A thread, and its latest run."""

    chat: Chat
    ts: str
    channel: str = "general"
    run: FakeRun = None  # type: ignore[assignment]

    @property
    def posts(self) -> list[WorkspaceMessage]:
        """The bot's messages in this thread, the status message included."""
        return [m for m in self._messages() if m.by_bot]

    @property
    def texts(self) -> list[str]:
        return [m.text for m in self.posts]

    def _messages(self) -> tuple[WorkspaceMessage, ...]:
        return self.chat.slack.workspace.thread(self.channel, self.ts)

    async def next_run(self) -> FakeRun:
        self.run = await self.chat.sessions.next_run()
        return self.run

    async def say(self, text: str, who: str = "ana") -> str:
        return await self.chat.slack.as_person(who).say(self.channel, text, thread=self.ts)

    async def inject(self, text: str, who: str = "ana") -> str:
        """Post a message, and wait until the run has it."""
        ts = await self.say(text, who)
        await self.run.until(lambda run: text.removeprefix("@alpha ") in run.texts)
        return ts

    async def accept(self, text: str, who: str = "ana") -> str:
        """Post a message, and wait for its 📨."""
        ts = await self.say(text, who)
        await self.marked(ts, ENVELOPE)
        return ts

    async def edit(self, ts: str, text: str) -> None:
        await self.chat.ana.edit(self.channel, ts, text)

    async def delete(self, ts: str) -> None:
        await self.chat.ana.delete(self.channel, ts)

    async def cross(self, ts: str = "", who: str = "ana") -> None:
        """Add ❌ to a message, or to the first one of the thread."""
        await self.chat.slack.as_person(who).react(self.channel, ts or self.ts, "x")

    async def stop(self, who: str = "ana") -> None:
        """Post a stop word, and wait until the run is stopped."""
        stops = len(self.run.stops)
        await self.say("stop", who)
        await self.run.until(lambda run: len(run.stops) > stops)

    async def stopped(self) -> None:
        """Stop the run, and end it as a loop does."""
        await self.stop()
        await self.run.answer("", status="cancelled")

    def message(self, ts: str) -> WorkspaceMessage:
        return self.chat.slack.workspace.message(self.channel, ts)

    async def marked(self, ts: str, name: str, *, gone: bool = False, within_s: float = 10) -> None:
        """Wait until a message has a reaction, or no longer has it."""
        await self.chat.slack.until(lambda _: self.message(ts).reacted(name) is not gone, within_s)

    async def status(self) -> WorkspaceMessage:
        return await self.contains("⚙️")

    async def contains(self, text: str, within_s: float = 10) -> WorkspaceMessage:
        """Wait until a message of the bot has this text in it."""
        return await self.chat.slack.until(lambda _: next((m for m in self.posts if text in m.text), None), within_s)

    async def shows(self, *texts: str, within_s: float = 10) -> None:
        """Wait until no run is shown, and the bot's messages are these."""

        def settled(_: object) -> bool:
            return self.texts == [*texts] and not any(m.reacted(HOURGLASS) for m in self._messages())

        await self.chat.slack.until(settled, within_s)

    async def ended(self) -> list[str]:
        """Wait until no run is shown, and return the bot's texts."""

        def texts(_: object) -> list[str]:
            is_shown = any("⚙️" in m.text or m.reacted(HOURGLASS) for m in self._messages())
            return [] if is_shown else self.texts

        return await self.chat.slack.until(texts)
