"""Runs that no event of Slack begins: by a schedule, or by a trigger of another system."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import structlog

from connector.events import ThreadAddress, is_direct
from connector.formatting.inline import escape
from connector.inbound.access_policy import CANNOT_CHECK, Actor
from connector.protocols import InboxEntry
from connector.records import LogCommand, PendingMessage, ThreadNotice
from connector.slack_api.client import best_effort
from connector.slack_api.errors import RetryDecision, SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from connector.inbound.access_policy import AccessPolicy
    from connector.protocols import RunService
    from connector.routing import Router
    from connector.runs.background_tasks import BackgroundTasks

log = structlog.get_logger(__name__)

_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no run may begin, as a sentence. `is_transient`: that may change by itself."""

    reason: str
    is_transient: bool = False


@dataclass(frozen=True, slots=True)
class Unattended:
    """Begins runs in Slack on behalf of people who are not there, or of other systems.

    What begins is stored on return. The ids of the inbox entries follow from a `key`: one that is known has no effect,
    so that a failed call can be repeated.
    """

    runs: RunService
    router: Router
    policy: AccessPolicy
    background: BackgroundTasks

    @property
    def team(self) -> str:
        return self.router.team

    async def obstacle(self, user: str, channel: str, instance: str) -> Obstacle | None:
        """Return why a run of a person may not begin; `None`: it may. What Slack does not tell is no obstacle."""
        refusal = await self.policy.refusal(Actor(user, channel, None, None))
        if refusal == CANNOT_CHECK:
            return Obstacle(refusal, is_transient=True)
        await self.background.users.look_up((user,), within_s=_WITHIN_S)
        profile = self.background.users.profile(user)
        if refusal is not None or (profile is not None and profile.is_deactivated):
            return Obstacle("this person no longer has access to me here.")
        if instance.lower() not in map(str.lower, self.router.names()):
            return Obstacle(f"the agent {instance} no longer exists.")
        return Obstacle("I can no longer write in this channel.") if await self._is_closed(channel) else None

    async def _is_closed(self, channel: str) -> bool:
        """Return whether the bot can no longer post in a channel."""
        call = self.background.client.call("conversations.info", {"channel": channel}, CallSlot(Priority.LOOK_UP))
        try:
            async with asyncio.timeout(_WITHIN_S):
                found = (await call)["channel"]
        except TimeoutError:
            return False
        except SlackCallFailed as e:
            return e.decision is RetryDecision.CONVERSATION_CLOSED
        return bool(found.get("is_archived")) or (found.get("is_member") is False and not is_direct(channel))

    async def name_of(self, user: str) -> str:
        """Return the name of a person, or "someone"."""
        return await self.background.users.known_name_of(user)

    async def zone_of(self, user: str) -> str:
        """Return the IANA name of a person's time zone; blank: Slack does not tell.

        Raises:
            ValueError: Slack does not answer; the message is a sentence.
        """
        users = self.background.users
        await users.look_up((user,), within_s=_WITHIN_S, is_repeated=True)
        if users.is_unanswered(user):
            raise ValueError("Slack does not tell me your time zone just now. Write the schedule again in a minute.")
        return users.author(user).tz

    async def instance_at(self, place: ThreadAddress) -> str:
        """Return the name of the agent that answers in a place."""
        instance, _ = await self.router.resolve(place.message(f"{self.background.now_s():.6f}"))
        return instance.name

    async def begin(  # noqa: PLR0913 - the parts of a message
        self, place: ThreadAddress, user: str, instance: str, key: str, *, prompt: str, shown: str, app: str = ""
    ) -> bool:
        """Give a message to an agent in a thread, or in a new one; return False for a known key.

        `prompt` is the message for the agent; `shown`, as plain text, is for people. With the name of an `app`, it is
        not the message of a person.
        """
        now = f"{self.background.now_s():.6f}"
        if self._begins_threads(place):
            command = LogCommand("begin", user, now, instance, prompt, shown=shown, app=app)
            return await self._command(place, key, command)
        bot, facts = (user, {}) if app else ("", {f"person:{user}": now})
        message = replace(place.message(now, prompt), user=user, key=key, bot=bot, app=app)
        # The thread first: the agent must not read a message that no one has seen.
        await self._notice(place, key, shown)
        pending = PendingMessage(message, instance, prompt, message.id)
        entry = InboxEntry(message.id, "message", asdict(pending))
        return await self.runs.admit(place.conversation_id, entry, instance, facts)

    async def report(self, place: ThreadAddress, user: str, key: str, text: str) -> None:
        """Post a plain text in a place; in a closed channel, tell the person in a direct message instead.

        Raises:
            SlackCallFailed: Slack is not available now.
        """
        client = self.background.client
        if await self._is_closed(place.channel):
            try:
                place = ThreadAddress(self.team, await client.direct_with(user), None)
            except SlackCallFailed as e:
                if e.decision in (RetryDecision.TRANSIENT, RetryDecision.WORKSPACE_CLOSED):
                    raise
                arguments = {"channel": user, "text": escape(text)}
                await best_effort(client.call("chat.postMessage", arguments, CallSlot(run=user)))
                return
        if self._begins_threads(place):
            now = f"{self.background.now_s():.6f}"
            await self._command(place, key, LogCommand("say", user, now, self.router.names()[0], text))
        else:
            await self._notice(place, key, text)

    async def _notice(self, place: ThreadAddress, key: str, text: str) -> None:
        entry = notice_entry(place.conversation_id, key, text, self.background.now_s())
        await self.runs.admit(place.conversation_id, entry)

    async def _command(self, place: ThreadAddress, key: str, command: LogCommand) -> bool:
        entry = InboxEntry(f"{place.team}:{place.channel}:unattended:{key}", "command", asdict(command))
        return await self.runs.admit(place.of_channel.conversation_id, entry)

    def _begins_threads(self, place: ThreadAddress) -> bool:
        """Return whether a place is a whole channel rather than a conversation."""
        is_conversation = is_direct(place.channel) and not self.background.options.dm_threads
        return place.thread_ts is None and not is_conversation


def notice_entry(conversation_id: str, key: str, text: str, now_s: float) -> InboxEntry:
    """Return an inbox entry that posts a plain text in a conversation, once for each `key`."""
    message = replace(ThreadAddress.parse(conversation_id).message(f"{now_s:.6f}"), key=key)
    return InboxEntry(f"{key}:notice", "notice", asdict(ThreadNotice(message, text)))
