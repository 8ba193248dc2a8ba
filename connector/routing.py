"""Which messages are for an agent, and for which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from connector.messages import plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connector.messages import Message
    from connector.protocols import Instance

# A name alone may be any word of the sentence: it takes a sign that somebody is being addressed.
_ADDRESS = re.compile(r"^(?:@(\w[\w-]*)[:,]?|(\w[\w-]*)[:,])\s+(?=\S)")


class Router:
    """The gate: it says which instance a message is for, and remembers which one a conversation talks to.

    `known` is what it remembers from earlier: the names of instances by conversation; those that are gone are left out.
    """

    def __init__(self, instances: Sequence[Instance], bot_user: str, known: Mapping[str, str]) -> None:
        self._instances = {instance.name.lower(): instance for instance in instances}
        self._default = instances[0]
        self._bot_user = bot_user
        by_name = {instance.name: instance for instance in instances}
        self._conversations = {place: by_name[name] for place, name in known.items() if name in by_name}
        self._unvisited = set(self._conversations)

    def route(self, message: Message) -> tuple[Instance, str] | None:
        """The instance and the prompt, or `None` where the message is not for us.

        For us are mentions of the bot, direct messages, and what is written in a thread that an agent takes part in,
        unless it turns to another person by a mention.
        """
        known = self._conversations.get(message.place.conversation_id)
        mentioned = message.mentions(self._bot_user)
        if not mentioned and not message.direct and (known is None or message.mentions_anyone()):
            return None
        prompt = plain_text(message.text, self._bot_user)
        addressed = self._addressed(prompt)
        if addressed is not None:
            known, prompt = addressed
        return known or self._default, prompt

    def remember(self, message: Message, instance: Instance) -> bool:
        """Let the conversation go on with this instance. True: it is one from earlier, and nobody has written yet."""
        place = message.place.conversation_id
        self._conversations[place] = instance
        is_first = place in self._unvisited
        self._unvisited.discard(place)
        return is_first

    def _addressed(self, prompt: str) -> tuple[Instance, str] | None:
        """The instance that a message names first: `beta: look at this`, `@beta look at this`."""
        match = _ADDRESS.match(prompt)
        instance = self._instances.get((match[1] or match[2]).lower()) if match else None
        if match is None or instance is None:
            return None
        return instance, prompt[match.end() :]
