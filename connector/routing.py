"""Which messages are for an agent, and for which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from connector.events import plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.events import SlackMessage
    from connector.protocols import Instance, RunService

# A name alone may be any word of the sentence: it takes a sign that somebody is being addressed.
_ADDRESS = re.compile(r"^(?:@(\w[\w-]*)[:,]?|(\w[\w-]*)[:,])\s+(?=\S)")


class Router:
    """The gate: it says which instance a message is for.

    Which one a conversation goes on with is asked for each time: another process may have taken in what came last.
    """

    def __init__(self, instances: Sequence[Instance], runs: RunService, team: str, bot_user: str) -> None:
        self.team = team
        self._instances = {instance.name.lower(): instance for instance in instances}
        self._default = instances[0]
        self._runs = runs
        self._bot_user = bot_user

    def instance(self, name: str) -> Instance:
        """The instance of this name; where it is gone, the one that everybody gets who names none."""
        return self._instances.get(name.lower(), self._default)

    def names(self, first: str = "") -> list[str]:
        """The names of all instances, this one's in front."""
        return sorted((instance.name for instance in self._instances.values()), key=lambda name: name != first)

    async def route(self, message: SlackMessage) -> tuple[Instance, str] | None:
        """The instance and the prompt, or `None` where the message is not for us.

        For us are mentions of the bot, direct messages, and what is written in a thread that an agent takes part in,
        unless it turns to another person by a mention.
        """
        if not self.is_addressed(message):
            begins_a_thread = message.thread_ts is None
            if begins_a_thread or message.mentions_anyone() or await self._known(message) is None:
                return None
        return await self.read(message)

    async def read(self, message: SlackMessage) -> tuple[Instance, str]:
        """The instance and the prompt of a message that is for us, or was, whomever it turns to by now."""
        prompt = plain_text(message.text, self._bot_user)
        return self._addressed(prompt) or (await self._known(message) or self._default, prompt)

    def is_addressed(self, message: SlackMessage) -> bool:
        """Whether it is for us wherever it stands."""
        return message.direct or message.mentions(self._bot_user)

    async def _known(self, message: SlackMessage) -> Instance | None:
        """The instance that the conversation goes on with."""
        name = await self._runs.agent_of(message.place.conversation_id)
        return None if name is None else self.instance(name)

    def _addressed(self, prompt: str) -> tuple[Instance, str] | None:
        """The instance that a message names first: `beta: look at this`, `@beta look at this`."""
        match = _ADDRESS.match(prompt)
        instance = self._instances.get((match[1] or match[2]).lower()) if match else None
        if match is None or instance is None:
            return None
        return instance, prompt[match.end() :]
