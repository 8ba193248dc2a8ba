"""Keep the facts that agents and people remember, each for one channel or direct message only."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from connector.protocols import Refused
from orchestrator_interactive.modules.tool_memory import FACT_CHARS
from service.store.base import parse_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator_interactive.interactions.records import Key
    from service.sessions.host import HostFunction
    from service.store.base import RunStore

_ID_CHARS = 6
# Facts of a channel: what fits into a request with room to spare.
MOST = 100
USAGE = "Write `!memory`, `!memory add TEXT`, `!memory edit ID TEXT`, `!memory forget ID` or `!memory forget all`."
EMPTY = "I remember nothing here."
_FULL = f"The memory of this channel has {MOST} facts, and no more are possible: forget one first."


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact: its text, its last author (a user id; blank: an agent), and its time (seconds since the epoch)."""

    id: str
    text: str
    by: str
    at_s: float

    @property
    def line(self) -> str:
        return f"{self.id}: {self.text}"


_FACT = TypeAdapter(Fact)


class ChannelMemory:
    """The facts of all channels, in a collection of documents for each; implements `connector.protocols.Memory`.

    Args:
        now_s: seconds since the epoch.
    """

    def __init__(self, store: RunStore, now_s: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now_s = now_s

    @property
    def functions(self) -> dict[str, HostFunction]:
        """The functions that sessions may call; see `service.sessions.host`. All return `lines`."""
        return {f"memory.{name}": self._function(name) for name in ("add", "list", "edit", "forget")}

    def _function(self, name: str) -> HostFunction:
        async def call(key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
            channel = channel_of(key.conversation_id)
            match name:
                case "add":
                    added = await self.add(channel, arguments["text"], "", f"{key} {arguments['call_id']}")
                    return {"lines": [f"Remembered as {added.line}"]}
                case "edit":
                    return {"lines": [f"Now {(await self.edit(channel, arguments['id'], arguments['text'], '')).line}"]}
                case "forget":
                    return {
                        "lines": [f"Forgotten: {each.text}" for each in await self.forget(channel, arguments["id"])]
                    }
            return {"lines": [each.line for each in await self.facts(channel)]}

        return call

    async def channels(self) -> list[str]:
        """Return the channels that have facts."""
        found = await self._store.collections(_collection(""))
        return [each.removeprefix(_collection("")) for each in found]

    async def facts(self, channel: str) -> list[Fact]:
        """Return the facts of a channel (`team:channel`), the oldest first."""
        documents = await self._store.documents(_collection(channel))
        return sorted(parse_documents(_FACT, documents).values(), key=lambda each: (each.at_s, each.id))

    async def add(self, channel: str, text: str, by: str, request: str) -> Fact:
        """Keep a fact; a repeated `request` returns the stored one.

        Raises:
            ValueError: it is blank or too long, or there are too many; the message is a sentence.
        """
        known = await self.facts(channel)
        name = f"m{sha256(f'{channel} {request}'.encode()).hexdigest()[:_ID_CHARS]}"
        if (same := next((each for each in known if each.id == name), None)) is not None:
            return same
        if len(known) >= MOST:
            raise ValueError(_FULL)
        fact = Fact(name, _checked(text), by, self._now_s())
        await self._store.put_document(_collection(channel), name, asdict(fact))
        return fact

    async def edit(self, channel: str, fact_id: str, text: str, by: str) -> Fact:
        """Change the text of a fact.

        Raises:
            ValueError: there is none, or the text is blank or too long.
        """
        known = (await self._named(channel, fact_id))[0]
        fact = replace(known, text=_checked(text), by=by)
        await self._store.put_document(_collection(channel), fact.id, asdict(fact))
        return fact

    async def forget(self, channel: str, fact_id: str) -> list[Fact]:
        """Delete a fact, or with `all` every one, and return the deleted facts.

        Raises:
            ValueError: there is none.
        """
        found = await self.facts(channel) if fact_id == "all" else await self._named(channel, fact_id)
        for each in found:
            await self._store.delete_document(_collection(channel), each.id)
        return found

    async def _named(self, channel: str, fact_id: str) -> list[Fact]:
        name = fact_id.strip("`:").lower()
        found = [each for each in await self.facts(channel) if each.id == name]
        if not found:
            raise ValueError(f"I remember nothing with the id {fact_id!r} here; `!memory` lists all.")
        return found

    async def carry_out(self, channel: str, user: str, words: str, request: str) -> str:
        """Carry out the words of a command; see the protocol."""
        try:
            match words.split(maxsplit=2):
                case []:
                    return "\n".join(f"• {_shown(each)}" for each in await self.facts(channel)) or EMPTY
                case ["add", *_]:
                    added = await self.add(channel, words.partition("add")[2], user, request)
                    return f"🧠 Remembered as `{added.id}`: {added.text}"
                case ["edit", fact_id, text]:
                    edited = await self.edit(channel, fact_id, text, user)
                    return f"🧠 Now `{edited.id}`: {edited.text}"
                case ["forget", fact_id]:
                    gone = await self.forget(channel, fact_id)
                    return "\n".join(f"🗑️ Forgotten: {each.text}" for each in gone) or EMPTY
        except ValueError as e:
            raise Refused(str(e)) from e
        return USAGE

    async def export(self, channel: str) -> str:
        """Return the facts of a channel as JSON, a line each."""
        return "".join(f"{json.dumps(asdict(each), ensure_ascii=False)}\n" for each in await self.facts(channel))


def _checked(text: str) -> str:
    found = " ".join(text.split())
    if not found or len(found) > FACT_CHARS:
        raise ValueError(f"A fact has 1 to {FACT_CHARS} characters, and this one has {len(found)}.")
    return found


def _shown(fact: Fact) -> str:
    by = "a person" if fact.by else "an agent"
    return f"`{fact.id}` {fact.text} (by {by}, {datetime.fromtimestamp(fact.at_s, UTC):%d %b %Y})"


def channel_of(conversation_id: str) -> str:
    """Return the channel of a conversation, as `team:channel`."""
    return ":".join(conversation_id.split(":")[:2])


def _collection(channel: str) -> str:
    return f"memory:{channel}"
