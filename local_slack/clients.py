"""Clients of a running workspace: the names and tokens of the app in it, and people and other apps that act in it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import aiohttp

    from local_slack.json_limits import Json
    from local_slack.workspace.installations import Installations
    from local_slack.workspace.messages import Channel
    from local_slack.workspace.people import Bot, Directory, Person
    from local_slack.workspace.views import View
    from local_slack.workspace.workspace import Workspace

    Choice = str | Sequence[str] | None

_AT_NAME = re.compile(r"(?<![\w<@])@([a-z0-9][a-z0-9._-]*)")


class _Client:
    """Calls with the token of one member."""

    def __init__(self, token: str, workspace: Workspace, url: str, session: aiohttp.ClientSession) -> None:
        self._token = token
        self._workspace = workspace
        self._directory: Directory = workspace.directory
        self._url = url
        self._session = session

    async def call(self, method: str, **arguments: Any) -> Json:
        """Call any Web API method with this member's token; arguments that are None are omitted."""
        return await self._post(f"api/{method}", arguments)

    async def _post(self, path: str, arguments: Mapping[str, Any]) -> Json:
        given = {name: value for name, value in arguments.items() if value is not None}
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self._session.post(self._url + path, json=given, headers=headers) as response:
            answer: Json = await response.json()
        if not answer["ok"]:
            raise SlackRefused(answer["error"], *answer.get("response_metadata", {}).get("messages", ()))
        return answer


class AppClient(_Client):
    """Act as an app other than the one under test. Channels are given by name or id; errors raise SlackRefused."""

    def __init__(self, app: Bot, workspace: Workspace, url: str, session: aiohttp.ClientSession) -> None:
        super().__init__(app.token, workspace, url, session)
        self.app = app

    async def post(  # noqa: PLR0913 - the arguments of chat.postMessage
        self,
        channel: str,
        text: str | None = None,
        *,
        blocks: Sequence[Json] | None = None,
        attachments: Sequence[Json] | None = None,
        thread: str | None = None,
        username: str | None = None,
    ) -> str:
        """Post and return the ts. A ``username`` makes it a ``bot_message``, as in Slack."""
        place = self._workspace.channel(channel).id
        parts = {"text": text, "blocks": blocks, "attachments": attachments, "thread_ts": thread, "username": username}
        return str((await self.call("chat.postMessage", channel=place, **parts))["ts"])


class PersonClient(_Client):
    """Act as one person. Channels are given by name or id; errors raise SlackRefused."""

    def __init__(self, person: Person, workspace: Workspace, url: str, session: aiohttp.ClientSession) -> None:
        super().__init__(person.token, workspace, url, session)
        self.person = person

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

    async def forward(self, channel: str, ts: str, to: str, text: str = "", *, thread: str | None = None) -> str:
        """Share a message of ``channel`` in the channel ``to``, or with a member, and return the ts of the forward."""
        with suppress(KeyError):
            to = self._directory.named(to).id
        place = {"channel": channel, "ts": ts, "to": to, "thread_ts": thread}
        return str((await self._post("page/forward", {**place, "text": self._composed(text)}))["ts"])

    async def snippet(self, channel: str, name: str, code: str, text: str = "", *, thread: str | None = None) -> None:
        """Post a code snippet with a comment; the ending of ``name`` is its type."""
        kind = name.rpartition(".")[2]
        await self.share(channel, {name: code.encode()}, text, thread=thread, snippet_type=kind)

    async def share(
        self,
        channel: str,
        files: Mapping[str, bytes],
        text: str = "",
        *,
        thread: str | None = None,
        snippet_type: str | None = None,
    ) -> str:
        """Post one message with files, given as names and contents, and return its ts."""
        ids = []
        for name, content in files.items():
            given = {"filename": name, "length": len(content), "snippet_type": snippet_type}
            upload = await self.call("files.getUploadURLExternal", **given)
            async with self._session.post(upload["upload_url"], data=content) as response:
                response.raise_for_status()
            ids.append(upload["file_id"])
        place, shared = self._workspace.channel(channel).id, [{"id": each} for each in ids]
        given = {"files": shared, "initial_comment": self._composed(text), "channel_id": place, "thread_ts": thread}
        await self.call("files.completeUploadExternal", **given)
        posted = reversed(self._workspace.messages(place))
        return next(each.ts for each in posted if [file.id for file in each.files] == ids)

    async def edit(self, channel: str, ts: str, text: str) -> None:
        await self.call("chat.update", channel=channel, ts=ts, text=self._composed(text))

    async def delete(self, channel: str, ts: str) -> None:
        await self.call("chat.delete", channel=channel, ts=ts)

    async def react(self, channel: str, ts: str, name: str) -> None:
        await self.call("reactions.add", channel=channel, timestamp=ts, name=name)

    async def unreact(self, channel: str, ts: str, name: str) -> None:
        await self.call("reactions.remove", channel=channel, timestamp=ts, name=name)

    async def click(self, channel: str, ts: str, action_id: str, value: Choice = None, **values: Any) -> None:
        """Press a button of a message, or choose ``value`` in its menu; returns after the app's acknowledgement.

        ``value`` is an option's value or a member's id, a list of them if several can be chosen. ``values`` are those
        of other inputs of the message, by ``action_id``. Raises SlackRefused: ``not_connected`` or ``no_answer`` where
        Slack shows a warning at the button, ``no_such_action`` if the message has no such button.
        """
        place = {"channel": channel, "ts": ts}
        await self._post("page/click", {**place, "action_id": action_id, "value": value, "values": values})

    async def click_home(self, action_id: str, value: Choice = None, **values: Any) -> None:
        """Press a button of the Home tab, or choose in it; arguments and errors as for ``click``."""
        await self._post("page/click_home", {"action_id": action_id, "value": value, "values": values})

    async def click_modal(self, action_id: str, value: Choice = None, **values: Any) -> None:
        """Press a button of the modal that the app shows, or choose in it; arguments and errors as for ``click``."""
        await self._post("page/click_modal", {"action_id": action_id, "value": value, "values": values})

    @property
    def home(self) -> View | None:
        """Return the Home tab that the app has published for this person."""
        return self._workspace.views.home(self.person.id)

    @property
    def modal(self) -> View | None:
        """Return the modal that this person sees, the topmost one."""
        return self._workspace.views.modal(self.person.id)

    async def command(self, channel: str, text: str, *, thread: str | None = None) -> str | None:
        """Type a slash command, such as ``/agent status``; returns the ts of the app's answer, None without one.

        Raises SlackRefused: ``unknown_command``, ``not_supported_in_threads``; ``operation_timeout`` or
        ``dispatch_failed`` if the app does not acknowledge it.
        """
        arguments = {"channel": channel, "text": self._composed(text), "thread_ts": thread}
        ts = (await self._post("page/command", arguments))["ts"]
        return str(ts) if ts else None

    async def shortcut(self, callback_id: str, channel: str | None = None, ts: str | None = None) -> None:
        """Use a shortcut on a message; without a message, a global one. Raises SlackRefused ``no_such_shortcut``."""
        await self._post("page/shortcut", {"callback_id": callback_id, "channel": channel, "ts": ts})

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

    async def close_modal(self, *, clear: bool = False) -> None:
        """Close the modal; with ``clear``, also those below it."""
        await self._post("page/close_view", {"clear": clear})

    def _composed(self, text: str) -> str:
        return _AT_NAME.sub(self._mention, text)

    def _mention(self, match: re.Match[str]) -> str:
        name = match[1].rstrip(".-_")
        try:
            return f"<@{self._directory.named(name).id}>{match[1][len(name) :]}"
        except KeyError:
            return match[0]


class InstalledTeam:
    """Names and tokens of the app in ``workspace``; ``connection`` gives the server's URL and the clients' session."""

    def __init__(
        self,
        workspace: Workspace,
        connection: Callable[[], tuple[str, aiohttp.ClientSession]],
        installations: Installations,
    ) -> None:
        self.workspace = workspace
        self._connect = connection
        self._app_installations = installations

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

    @property
    def is_installed(self) -> bool:
        """Whether the app is installed in this workspace, by itself or with its organisation."""
        return self._app_installations.authorization(self.team_id) is not None

    def uninstall(self) -> None:
        """Remove the app from this workspace, as an administrator does. Raises KeyError if it is not installed."""
        self._app_installations.uninstall(self.team_id)

    def grant(self, *, is_granted: bool = True) -> None:
        """Let the installation of the organisation be used in this workspace, or no longer."""
        self._app_installations.grant(self.team_id, is_granted=is_granted)

    def person(self, name: str) -> Person:
        return self.workspace.directory.person(name)

    def channel(self, name: str) -> Channel:
        return self.workspace.channel(name)

    def as_person(self, name: str) -> PersonClient:
        """Return a client that acts as this person over HTTP."""
        return PersonClient(self.person(name), self.workspace, *self._connect())

    def as_app(self, name: str) -> AppClient:
        """Return a client that posts as one of the other ``apps``."""
        return AppClient(self.workspace.directory.app(name), self.workspace, *self._connect())
