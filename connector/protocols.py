"""What the connector needs from whoever runs the agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    ProgressCallback = Callable[[str, dict[str, Any]], Awaitable[None]]


class RunFailed(Exception):  # noqa: N818 - a fact about the run, shown to people
    """The run could not answer; the message is a sentence for the people in the thread."""


class Refused(Exception):  # noqa: N818 - one of the ends a message can come to
    """A message cannot be taken; the message of this error tells its author why."""


@dataclass(frozen=True, slots=True)
class Persona:
    """The name and the icon (an emoji code such as `:owl:`) under which an instance answers."""

    name: str
    emoji: str


@dataclass(frozen=True, slots=True)
class Instance:
    name: str
    persona: Persona


@dataclass(frozen=True, slots=True)
class Steer:
    """What a person wrote into a running execution. `id` is the message's identity, `team:channel:ts`.

    `author` is their name, or their id where it is not known: without one the model could take a line for another's.
    """

    id: str
    text: str
    author: str
    files: tuple[str, ...] = ()


class SessionManager(Protocol):
    """Runs the agents, one session per instance and conversation.

    A steer whose text begins with `!` is to be read at once. `on_progress(event, data)` hears

    - `executing`: from now on steers are read; `thinking`: the model is asked, and has the prompt before it
    - `tool:start`, `tool:progress`, `tool:end`: by the `id` of the call; what it is called (`label`), how far it says
      that it has come (`text`)
    - `injection:applied`: the model has the steers of these `ids` before it
    - `text`: an interim answer
    - why the answer takes its time: `retrying` (`reason`: rate_limit, unavailable, timeout; `delay_s`, `attempt`,
      `max_attempts`), `fallback` (`to`: another provider), `compacting`
    - `complete`: `status` (success, incomplete, cancelled, error); `reason` and `detail` where it is incomplete;
      `usage`, the tokens and the cost; `waiting`, the number of steers not read; `tools`, each with its `label` and its
      `outcome` (finished, failed, cancelled, unknown)
    """

    async def execute(
        self, instance_name: str, conversation_id: str, prompt: str, on_progress: ProgressCallback | None = None
    ) -> str:
        """Run a prompt and return the answer; after a stop, what had been said until then.

        Raises:
            RunFailed: there is no answer, and why.
        """
        ...

    def inject(self, instance_name: str, conversation_id: str, steer: Steer) -> bool:
        """Hand a steer to the running execution. False: it reads no more, the message needs a run of its own.

        Raises:
            Refused: it cannot be taken at all.
        """
        ...

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False) -> bool:
        """Stop the execution that is on; whether that changed anything. Without one, it does nothing to the next."""
        ...
