"""The functions of `tool-slack`: reading for the people who ask, and posts, each once."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from connector.events import ThreadAddress
from connector.protocols import Refused
from connector.runs.workspace_reader import WorkspaceReader
from connector.slack_api import uploads
from connector.slack_api.errors import SlackCallFailed
from service.store.base import thread_of, workspace_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from connector.inbound.unattended import Unattended
    from orchestrator_interactive.interactions.records import Key
    from service.sessions.host import HostFunction

_NOT_CONNECTED = "There is no connection to Slack now. Try again later."
_KEY_CHARS = 16


class SlackTools:
    """Implements the capabilities `slack.…`, once `connect` was called.

    A call names the `people` on whose authority it is, as user ids.
    """

    def __init__(self) -> None:
        # By workspace.
        self._slack: dict[str, Unattended] = {}

    @contextmanager
    def connected(self, slack: Unattended) -> Iterator[None]:
        """Use the connection to a workspace while the context is open."""
        self._slack[slack.team] = slack
        try:
            yield
        finally:
            self._slack.pop(slack.team, None)

    @property
    def functions(self) -> dict[str, HostFunction]:
        """The functions that sessions may call; see `service.sessions.host`."""
        return {
            f"slack.{name}": self._function(work)
            for name, work in {
                "read": self._read,
                "search": self._search,
                "channels": self._channels,
                "people": self._people,
                "post": self._post,
                "upload": self._upload,
            }.items()
        }

    def _function(
        self, work: Callable[[WorkspaceReader, ThreadAddress, Key, Mapping[str, Any]], Awaitable[dict[str, Any]]]
    ) -> HostFunction:
        async def call(key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
            slack = self._slack.get(workspace_of(key.conversation_id))
            if slack is None:
                raise ValueError(_NOT_CONNECTED)
            background, router = slack.background, slack.router
            reader = WorkspaceReader(background.client, background.users, router)
            try:
                return await work(reader, ThreadAddress.parse(thread_of(key.conversation_id)), key, arguments)
            except Refused as e:
                raise ValueError(str(e)) from e

        return call

    async def _read(
        self, reader: WorkspaceReader, here: ThreadAddress, _: Key, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        place = await reader.place(given["place"], frozenset(given["people"]), here)
        found = await reader.read(place, given["most"], given["before"])
        return {"name": place.name, "messages": [asdict(each) for each in found]}

    async def _search(
        self, reader: WorkspaceReader, here: ThreadAddress, _: Key, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        place = await reader.place(given["place"], frozenset(given["people"]), here)
        found, count = await reader.search(place, given["words"], given["most"])
        return {"name": place.name, "messages": [asdict(each) for each in found], "searched": count}

    async def _channels(
        self, reader: WorkspaceReader, here: ThreadAddress, _: Key, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        found = await reader.channels(frozenset(given["people"]), here)
        topics = [(each, str((each.get("topic") or {}).get("value") or "")) for each in found]
        return {"channels": [[each["id"], each.get("name"), topic] for each, topic in topics]}

    async def _people(
        self, reader: WorkspaceReader, here: ThreadAddress, _: Key, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        await reader.place("here", frozenset(given["people"]), here)
        found = []
        for each in await reader.people(given["words"], given["most"]):
            profile = each.get("profile") or {}
            name = profile.get("display_name") or each.get("real_name") or each.get("name")
            found.append([each["id"], name, profile.get("title") or "", each.get("tz") or ""])
        return {"people": found}

    async def _upload(
        self, _reader: WorkspaceReader, here: ThreadAddress, _: Key, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return where a file can be uploaded, and its id; it is invisible until the run shares it."""
        client = self._slack[here.team].background.client
        try:
            url, file_id = await uploads.begin(client, given["name"], given["size"], given["alt_text"])
        except SlackCallFailed as e:
            raise ValueError(f"Slack takes no file now ({e.error}). Give the content in your answer instead.") from e
        return {"url": url, "id": file_id}

    async def _post(
        self, reader: WorkspaceReader, here: ThreadAddress, key: Key, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Store a post; a repeated `call_id` posts nothing again."""
        people = frozenset(given["people"])
        place = await reader.place(given["place"], people, here)
        allowed = set()
        for each in given["allowed"]:
            with suppress(Refused):  # renamed or unknown: it allows nothing
                allowed.add((await reader.find(each, here))[0])
        if place.channel not in allowed:
            raise ValueError(f"You may not post in {place.name}: the configuration of this agent does not allow it.")
        there = ThreadAddress(here.team, place.channel, place.thread_ts)
        identity = f"{key.conversation_id} {key.agent_id} {given['call_id']}"
        post_key = f"tool.{sha256(identity.encode()).hexdigest()[:_KEY_CHARS]}"
        try:
            await self._slack[here.team].report(there, min(people), post_key, given["text"])
        except SlackCallFailed as e:
            raise ValueError(f"Slack takes no post now ({e.error}). Try again later.") from e
        return {"name": place.name}
