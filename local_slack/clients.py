"""Clients of a running workspace: the names and tokens of the app in it, and people who act in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import aiohttp

    from local_slack.json_limits import Json
    from local_slack.workspace.messages import Channel
    from local_slack.workspace.people import Directory, Person
    from local_slack.workspace.workspace import Workspace

_AT_NAME = re.compile(r"(?<![\w<@])@([a-z0-9][a-z0-9._-]*)")


class PersonClient:
    """Act as one person. Channels are given by name or id; errors raise SlackRefused."""

    def __init__(self, person: Person, directory: Directory, url: str, session: aiohttp.ClientSession) -> None:
        self.person = person
        self._directory = directory
        self._url = url
        self._session = session

    async def say(self, channel: str, text: str, *, thread: str | None = None, broadcast: bool = False) -> str:
        """Post and return the ts. ``@name`` of a member becomes a mention, as in Slack's composer."""
        answer = await self.call(
            "chat.postMessage",
            channel=channel,
            text=self._composed(text),
            thread_ts=thread,
            reply_broadcast=broadcast or None,
        )
        return str(answer["ts"])

    async def dm(self, name: str, text: str, *, thread: str | None = None) -> str:
        """Post to the direct message with ``name`` and return the ts."""
        return await self.say(await self.open_dm(name), text, thread=thread)

    async def open_dm(self, name: str) -> str:
        """Open the direct message with ``name`` and return its channel id."""
        answer = await self.call("conversations.open", users=self._directory.named(name).id)
        return str(answer["channel"]["id"])

    async def edit(self, channel: str, ts: str, text: str) -> None:
        await self.call("chat.update", channel=channel, ts=ts, text=self._composed(text))

    async def delete(self, channel: str, ts: str) -> None:
        await self.call("chat.delete", channel=channel, ts=ts)

    async def react(self, channel: str, ts: str, name: str) -> None:
        await self.call("reactions.add", channel=channel, timestamp=ts, name=name)

    async def unreact(self, channel: str, ts: str, name: str) -> None:
        await self.call("reactions.remove", channel=channel, timestamp=ts, name=name)

    async def click(self, channel: str, ts: str, action_id: str, value: str | None = None) -> None:
        """Press a button of a message, or choose ``value`` in its menu; returns after the app's acknowledgement.

        Raises SlackRefused: ``not_connected`` or ``no_answer`` where Slack shows a warning at the button,
        ``no_such_action`` if the message has no such button.
        """
        await self._post("page/click", {"channel": channel, "ts": ts, "action_id": action_id, "value": value})

    async def stop_session(self, channel: str, thread_ts: str) -> None:
        """Press the Stop button that Slack shows while an agent works in a thread."""
        await self._post("page/stop_session", {"channel": channel, "thread_ts": thread_ts})

    async def open_home(self, tab: str = "messages") -> None:
        """Open the app in the sidebar: ``messages`` is its direct message, ``home`` its Home tab."""
        await self._post("page/open_home", {"tab": tab})

    async def look_at(self, channel: str | None) -> None:
        """Show a channel next to the app's direct message; None: nothing."""
        await self._post("page/look_at", {"channel": channel})

    async def open_thread(self, context: str | None = None, *, thread: str | None = None) -> None:
        """Open a thread in the app's direct message; ``context`` is the channel that the person sees next to it.

        With ``thread``, the person has moved to another channel while the thread stays open.
        """
        await self._post("page/open_thread", {"context": context, "thread_ts": thread})

    async def submit(self, **values: Any) -> None:
        """Submit the modal that the app shows; ``values`` by ``action_id``, options by their value.

        Raises SlackRefused: ``no_modal``, ``missing_value``, ``invalid_input`` with the app's messages, and those of
        ``click``.
        """
        await self._post("page/submit_view", {"values": values})

    async def close_modal(self) -> None:
        await self._post("page/close_view", {})

    async def call(self, method: str, **arguments: Any) -> Json:
        """Call any Web API method with this person's token; arguments that are None are omitted."""
        return await self._post(f"api/{method}", arguments)

    async def _post(self, path: str, arguments: Mapping[str, Any]) -> Json:
        given = {name: value for name, value in arguments.items() if value is not None}
        headers = {"Authorization": f"Bearer {self.person.token}"}
        async with self._session.post(self._url + path, json=given, headers=headers) as response:
            answer: Json = await response.json()
        if not answer["ok"]:
            raise SlackRefused(answer["error"], *answer.get("response_metadata", {}).get("messages", ()))
        return answer

    def _composed(self, text: str) -> str:
        return _AT_NAME.sub(self._mention, text)

    def _mention(self, match: re.Match[str]) -> str:
        name = match[1].rstrip(".-_")
        try:
            return f"<@{self._directory.named(name).id}>{match[1][len(name) :]}"
        except KeyError:
            return match[0]


class InstalledTeam:
    """Names and tokens of the app in ``workspace``; ``client`` makes the clients of people."""

    def __init__(self, workspace: Workspace, client: Callable[[Person, Workspace], PersonClient]) -> None:
        self.workspace = workspace
        self._client_of = client

    @property
    def name(self) -> str:
        return self.workspace.directory.team.name

    @property
    def team_id(self) -> str:
        return self.workspace.directory.team.id

    @property
    def bot_token(self) -> str:
        return self.workspace.directory.bot.token

    @property
    def bot_user_id(self) -> str:
        return self.workspace.directory.bot.id

    def person(self, name: str) -> Person:
        return self.workspace.directory.person(name)

    def channel(self, name: str) -> Channel:
        return self.workspace.channel(name)

    def as_person(self, name: str) -> PersonClient:
        """Return a client that acts as this person over HTTP."""
        return self._client_of(self.person(name), self.workspace)
