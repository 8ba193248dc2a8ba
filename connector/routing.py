"""Decide which agent a message is addressed to, if any."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connector.events import plain_text
from connector.protocols import DEFAULT_PARTICIPATION, BotRules, ChannelRules, ThreadFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connector.events import SlackMessage, ThreadAddress
    from connector.protocols import Instance, Participation, RunService
    from connector.slack_api.channels import ChannelTopics

# A bare name may be any word of the sentence, so that an `@` before it or a `:` or `,` after it is required.
_ADDRESS = re.compile(
    r"^(?:(?:hey|hi|hello|ok|okay)[,!]?\s+)?(?:@(\w[\w-]*)[:,]?|(\w[\w-]*)[:,])\s+(?=\S)", re.IGNORECASE
)

_IN_TOPIC = re.compile(r"\[instance:\s*(\w[\w-]*)\s*\]", re.IGNORECASE)
_NO_RULES = ChannelRules()
_NO_BOTS: Final = BotRules()


class Router:
    """Selects the instance that answers a message.

    The current instance of a conversation is read from the store each time: another process may have changed it.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the last four have defaults
        self,
        instances: Sequence[Instance],
        runs: RunService,
        team: str,
        bot_user: str,
        channels: Mapping[str, ChannelRules] | None = None,
        topics: ChannelTopics | None = None,
        bots: BotRules = _NO_BOTS,
        own_bot: str = "",
        elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        self.team = team
        self._topics = topics
        self._own_bot = own_bot
        self.configure(instances, channels or {}, bots, elsewhere)
        self._runs = runs
        self.bot_user = bot_user

    def configure(
        self,
        instances: Sequence[Instance],
        channels: Mapping[str, ChannelRules],
        bots: BotRules = _NO_BOTS,
        elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        """Replace the instances (the first one is the default), the rules of channels by their ids, and of bots.

        `elsewhere` are the lower-case names of instances that only other workspaces have.
        """
        self._instances = {instance.name.lower(): instance for instance in instances}
        self._default = instances[0]
        self._elsewhere = elsewhere
        self._channels = channels
        self.bots = bots

    def instance(self, name: str) -> Instance:
        """Return the instance of this name; one that is no longer configured posts as the default instance does.

        In place of one that only other workspaces have, the default instance answers.
        """
        if name.lower() in self._elsewhere:
            return self._default
        return self._instances.get(name.lower()) or replace(self._default, name=name)

    def names(self, first: str = "") -> list[str]:
        """Return the names of all instances, with `first` in front."""
        return sorted((instance.name for instance in self._instances.values()), key=lambda name: name != first)

    def prompts(self, agent: str | None, general: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return the prompts to suggest: those of the agent of a conversation, the general ones, or the default's."""
        own = () if agent is None else self.instance(agent).suggested_prompts
        return own or general or self._default.suggested_prompts

    async def route(self, message: SlackMessage) -> tuple[Instance, str] | None:
        """Return the instance and the prompt; `None` if the message is not addressed to the bot.

        A message is addressed to the bot if it mentions it, or is a direct message; by the policy of its instance and
        channel also if it is a reply of a person who takes part in the thread, or a top-level message, and mentions no
        one. A message of another bot must mention the bot or begin a thread, and its author must be among the allowed
        ones.
        """
        thread = ThreadFacts()
        if message.thread_ts is not None or self.is_addressed(message):
            thread = await self.thread_of(message)
        return self.routed(message, thread)

    def routed(self, message: SlackMessage, thread: ThreadFacts) -> tuple[Instance, str] | None:
        """Return the result of `route` for a message in a known thread."""
        routed = self._resolved(message, thread)
        if message.bot and not (self.is_heard(message) and thread.bots_may_write(message.ts, self.bots.exchanges)):
            return None
        if self.is_addressed(message):
            return routed
        answers = self.participation(routed[0], message.channel).answers
        if answers == "mention" or message.mentions_anyone():
            return None
        if message.thread_ts is None:
            pattern = self._rules(message.channel).pattern
            is_watched = answers == "every" and (pattern is None or pattern.search(f"{message.text}\n{message.quoted}"))
            return routed if is_watched else None
        takes_part = thread.agent is not None and thread.takes_part(message.user, message.ts)
        return routed if takes_part and not thread.is_muted(message.ts) else None

    async def facts_of(self, message: SlackMessage) -> dict[str, str]:
        """Return the facts of a message to an agent: a person takes part in the thread, a bot uses an exchange."""
        if not message.bot:
            return {f"person:{message.user}": message.ts, "people": message.ts}
        return (await self.thread_of(message)).exchange(message.ts, self.bots.exchanges)

    async def may_steer_only(self, message: SlackMessage) -> bool:
        """Return whether a reply that is not answered is for an active run, because anyone may steer there."""
        if message.bot:
            return False
        thread = await self.thread_of(message)
        participation = self.participation(self._resolved(message, thread)[0], message.channel)
        is_heard = participation.answers != "mention" and not thread.is_muted(message.ts)
        return is_heard and participation.steerers == "anyone" and not message.mentions_anyone()

    async def resolve(self, message: SlackMessage) -> tuple[Instance, str]:
        """Return the instance and the prompt without checking that the message is still addressed to the bot."""
        return self._resolved(message, await self.thread_of(message))

    async def thread_of(self, message: SlackMessage) -> ThreadFacts:
        """Return the facts of the thread of a message."""
        thread = await self._runs.thread_of(message.place.conversation_id)
        has_choice = thread.agent is None and len(self._instances) > 1 and not message.direct
        if self._topics is not None and has_choice and self._rules(message.channel).instance is None:
            await self._topics.look_up(message.channel)
        return thread

    async def people_in(self, place: ThreadAddress) -> ThreadFacts:
        """Return the facts of a conversation. Who takes part in a thread takes part in those of its workers, too."""
        facts = await self._runs.thread_of(place.conversation_id)
        if not place.worker:
            return facts
        thread = (await self._runs.thread_of(place.thread.conversation_id)).latest
        people = {
            name: min(ts, facts.latest.get(name, ts)) for name, ts in thread.items() if name.startswith("person:")
        }
        return replace(facts, latest={**facts.latest, **people})

    def participation(self, instance: Instance, channel: str) -> Participation:
        """Return the settings of an instance in a channel."""
        return self._rules(channel).participation.over(instance.participation).over(DEFAULT_PARTICIPATION)

    def _rules(self, channel: str) -> ChannelRules:
        return self._channels.get(channel, _NO_RULES)

    def _resolved(self, message: SlackMessage, thread: ThreadFacts) -> tuple[Instance, str]:
        prompt = plain_text(message.text, self.bot_user)
        # The prompt may name an instance: `beta: look at this`, `@beta look at this`, or `beta:` before a file.
        match = _ADDRESS.match(f"{prompt} {message.attached}")
        named = self._instances.get((match[1] or match[2]).lower()) if match else None
        if match is not None and named is not None:
            return named, prompt[match.end() :]
        by_channel = self._rules(message.channel).instance or self._by_topic(message.channel)
        name = thread.agent or by_channel
        return (self._default if name is None else self.instance(name)), prompt

    def _by_topic(self, channel: str) -> str | None:
        """Return the instance that the topic of a channel names, as in `[instance:beta]`."""
        match = None if self._topics is None else _IN_TOPIC.search(self._topics.topic(channel))
        return match[1] if match is not None and match[1].lower() in self._instances else None

    def is_mention(self, found: dict[str, Any]) -> bool:
        """Return whether a person's message from Slack's history mentions the bot."""
        return f"<@{self.bot_user}" in (found.get("text") or "") and not found.get("bot_id")

    def is_addressed(self, message: SlackMessage) -> bool:
        """Return whether the message itself addresses the bot, regardless of its thread."""
        return message.direct or (message.mentions(self.bot_user) and self.is_heard(message))

    def is_own(self, message: SlackMessage) -> bool:
        """Return whether the bot itself posted a message."""
        return self._is_us(message.user, message.bot)

    def is_own_post(self, found: dict[str, Any]) -> bool:
        """Return whether the bot itself posted a message from Slack's history."""
        return self._is_us(found.get("user"), found.get("bot_id"))

    def _is_us(self, user: str | None, bot: str | None) -> bool:
        return user == self.bot_user or bot == self._own_bot != ""  # a post with a persona names no user

    def is_heard(self, message: SlackMessage) -> bool:
        """Return whether the author of a message is a person or another bot that is answered."""
        return not message.bot or (message.bot in self.bots.ids and not self.is_own(message))
