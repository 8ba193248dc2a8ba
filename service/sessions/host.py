"""Functions of the service that sessions can call, by name, with JSON objects in and out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from orchestrator_interactive.interactions.records import Key

# Stores a note for the conversation of the session; its capability is called with the text, and returns a task.
NOTIFY = "service.notify"
# Returns the sub-agent (`agent`) of a worker, and further configuration (`overlay`).
OVERLAY = "workers.overlay"
DISPATCH = "workers.dispatch"

# Returns the name of the model that people have chosen in the thread (`model`); blank: none.
MODEL = "service.model"

HostFunction = Callable[["Key", Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class SessionHost(Protocol):
    """The service, as a session sees it; it may be another process."""

    @property
    def names(self) -> Collection[str]:
        """The functions. A session has one capability of the same name for each."""

    async def call(self, key: Key, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a function for the session of a conversation.

        Raises:
            ValueError: it is refused; the message is a sentence for the model.
            StoreError: the store cannot be used.
        """


@dataclass(frozen=True, slots=True)
class LocalHost:
    """The functions of this process."""

    functions: Mapping[str, HostFunction]

    @property
    def names(self) -> Collection[str]:
        return self.functions.keys()

    async def call(self, key: Key, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a function; see the protocol."""
        return await self.functions[name](key, arguments)
