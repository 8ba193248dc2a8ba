"""Decide which agent a message is addressed to, if any."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.events import plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.events import SlackMessage
    from connector.protocols import Instance, RunService

# A bare name may be any word of the sentence, so that an `@` before it or a `:` or `,` after it is required.
_ADDRESS = re.compile(r"^(?:@(\w[\w-]*)[:,]?|(\w[\w-]*)[:,])\s+(?=\S)")


class Router:
    """Selects the instance that answers a message.

    The current instance of a conversation is read from the store each time: another process may have changed it.
    """

    def __init__(self, instances: Sequence[Instance], runs: RunService, team: str, bot_user: str) -> None:
        self.team = team
        self.configure(instances)
        self._runs = runs
        self._bot_user = bot_user

    def configure(self, instances: Sequence[Instance]) -> None:
        """Replace the instances; the first one is the default."""
        self._instances = {instance.name.lower(): instance for instance in instances}
        self._default = instances[0]

    def instance(self, name: str) -> Instance:
        """Return the instance of this name; one that is no longer configured posts as the default instance does."""
        return self._instances.get(name.lower()) or replace(self._default, name=name)

    def names(self, first: str = "") -> list[str]:
        """Return the names of all instances, with `first` in front."""
        return sorted((instance.name for instance in self._instances.values()), key=lambda name: name != first)

    async def route(self, message: SlackMessage) -> tuple[Instance, str] | None:
        """Return the instance and the prompt; `None` if the message is not addressed to the bot.

        A message is addressed to the bot if it mentions it, is a direct message, or is a reply in a thread with an
        agent and mentions no one.
        """
        if not self.is_addressed(message):
            begins_a_thread = message.thread_ts is None
            if begins_a_thread or message.mentions_anyone() or await self._known(message) is None:
                return None
        return await self.resolve(message)

    async def resolve(self, message: SlackMessage) -> tuple[Instance, str]:
        """Return the instance and the prompt without checking that the message is still addressed to the bot."""
        prompt = plain_text(message.text, self._bot_user)
        # The prompt may name an instance: `beta: look at this`, `@beta look at this`, or `beta:` before a forward.
        match = _ADDRESS.match(f"{prompt} {message.quoted}" if prompt else "")
        named = self._instances.get((match[1] or match[2]).lower()) if match else None
        if match is not None and named is not None:
            return named, prompt[match.end() :]
        return await self._known(message) or self._default, prompt

    def is_addressed(self, message: SlackMessage) -> bool:
        """Return whether the message itself addresses the bot, regardless of its thread."""
        return message.direct or message.mentions(self._bot_user)

    async def _known(self, message: SlackMessage) -> Instance | None:
        """Return the current instance of the conversation."""
        name = await self._runs.agent_of(message.place.conversation_id)
        return None if name is None else self.instance(name)
