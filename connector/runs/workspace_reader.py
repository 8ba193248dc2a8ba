"""Read channels and threads for a person: nothing that this person, or the place where it is shown, may not see.

The content of a private channel is read only there, or in a direct message with one of its members. A request is
refused if Slack does not answer a question about it.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connector.events import ThreadAddress, is_direct, message_of, plain_text
from connector.protocols import Refused
from connector.records import UNREADABLE
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connector.routing import Router
    from connector.slack_api.client import SlackClient
    from connector.slack_api.users import Users

    Found = dict[str, Any]

_PAGE = 200
_MOST_PAGES = 20
# Messages of a channel that a search looks at.
_MOST_SEARCHED = 2_000
_WITHIN_S = 20.0
_PROFILE_WITHIN_S = 5.0
_CHANNEL_ID = re.compile(r"[CGD][A-Z0-9]{5,}")
_MENTION = re.compile(r"<#([CGD][A-Z0-9]{2,})(?:\|[^>]*)?>")
_LINK = re.compile(
    r"https://[\w.-]+/archives/([CGD][A-Z0-9]{2,})(?:/p(\d{10})(\d{6}))?(?:\?(?:.*&)?thread_ts=(\d+\.\d+))?"
)
_TS = re.compile(r"\d{10}\.\d{6}")
_NOT_SHOWN = "You may not show the content of {name} here. "


@dataclass(frozen=True, slots=True)
class Place:
    """A channel that may be read, with its name; `thread_ts` is a thread in it, if one was named."""

    channel: str
    name: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A message of a channel or thread: its author, its text, the names of its files, and its replies."""

    ts: str
    user: str
    name: str
    zone: str
    text: str
    files: tuple[str, ...] = ()
    replies: int = 0


class WorkspaceReader:
    """Reads on behalf of people. All methods raise `Refused` with a sentence for the model.

    Args:
        router: recognises the bot's own posts.
    """

    def __init__(self, client: SlackClient, users: Users, router: Router) -> None:
        self._client = client
        self._users = users
        self._router = router

    async def place(self, given: str, askers: frozenset[str], here: ThreadAddress) -> Place:
        """Return the place of a link, an id or a name, if all the askers may read it and see it `here`."""
        channel, thread_ts = await self.find(given, here)
        info = await self._info(channel)
        name = f"#{info['name']}" if info.get("name") else "this conversation"
        await self._check(info, name, askers, here)
        return Place(channel, name, thread_ts)

    async def find(self, given: str, here: ThreadAddress) -> tuple[str, str | None]:
        """Return the ids of the channel and thread of a link, an id or a name, whether or not they may be read."""
        given = given.strip()
        if given in {"", "here"}:
            return here.channel, None
        if given == "thread":
            return here.channel, here.thread_ts
        if link := _LINK.fullmatch(given.strip("<>").partition("|")[0]):
            own_ts = f"{link[2]}.{link[3]}" if link[2] else None
            return link[1], link[4] or own_ts
        if mention := _MENTION.fullmatch(given):
            return mention[1], None
        if _CHANNEL_ID.fullmatch(given):
            return given, None
        name = given.removeprefix("#").lower()
        for info in await self._listed():
            if info.get("name") == name:
                return str(info["id"]), None
        raise Refused(f"I know no channel {given!r}. slack_channels lists those that you can read.")

    async def channels(self, askers: frozenset[str], here: ThreadAddress) -> list[Found]:
        """Return the channels that all the askers may read and see `here`."""
        found = []
        for info in await self._listed():
            try:
                await self._check(info, str(info.get("name")), askers, here)
            except Refused:
                continue
            found.append(info)
        return found

    async def read(self, place: Place, most: int, before: str = "") -> list[ReadMessage]:
        """Return the newest messages of a channel, or the first ones of a thread, the oldest first.

        Those before the ts `before`, if it is given.
        """
        arguments: Found = {"limit": min(most, _PAGE)}
        if before:
            arguments["latest"] = _checked_ts(before)
        found = [each async for each in self._messages(place, arguments, most)]
        await self._users.look_up((each.user for each in found), within_s=_PROFILE_WITHIN_S)
        named = [self._named(each) for each in found]
        return named if place.thread_ts else named[::-1]

    async def search(self, place: Place, words: str, most: int) -> tuple[list[ReadMessage], int]:
        """Return the newest messages of a channel that have all the words, and how many were looked at."""
        wanted, found, count = words.casefold().split(), list[ReadMessage](), 0
        async for each in self._messages(place, {"limit": _PAGE}, _MOST_SEARCHED):
            count += 1
            if all(word in each.text.casefold() for word in wanted) and len(found) < most:
                found.append(each)
        await self._users.look_up((each.user for each in found), within_s=_PROFILE_WITHIN_S)
        return [self._named(each) for each in found], count

    async def people(self, words: str, most: int) -> list[Found]:
        """Return the profiles of members whose names, titles or e-mail addresses have all the words."""
        wanted = words.casefold().split()
        found: list[Found] = []
        async for member in self._paged("users.list", {"team_id": self._router.team}, "members"):
            profile = member.get("profile") or {}
            known = [member.get("name"), member.get("real_name"), profile.get("display_name")]
            known += [profile.get("title"), profile.get("email")]
            text = " ".join(str(each) for each in known if each).casefold()
            if not member.get("deleted") and not member.get("is_bot") and all(word in text for word in wanted):
                found.append(member)
                if len(found) == most:
                    break
        return found

    async def _check(self, info: Found, name: str, askers: frozenset[str], here: ThreadAddress) -> None:
        """Raise `Refused` unless all the askers may read a channel, and its content may be shown here."""
        channel = str(info["id"])
        if not askers or "" in askers:
            raise Refused("The author of this request is unknown, so nothing may be read.")
        if channel == here.channel:
            return
        if info.get("is_im") or is_direct(channel):
            raise Refused("Direct messages may be read only where they are.")
        is_private = bool(info.get("is_private") or info.get("is_mpim") or info.get("is_group"))
        if is_private and not (is_direct(here.channel) and len(askers) == 1):
            raise Refused(_NOT_SHOWN.format(name=name) + "It is private: ask there, or in a direct message with me.")
        if not is_direct(here.channel):
            shown_in = await self._info(here.channel)
            if shown_in.get("is_ext_shared") or shown_in.get("is_pending_ext_shared") or shown_in.get("is_org_shared"):
                raise Refused(_NOT_SHOWN.format(name=name) + "People of other organisations read this channel.")
        members: frozenset[str] | None = None
        for asker in askers:
            if is_private or not await self._is_full_member(asker):
                members = await self._members(channel) if members is None else members
                if asker not in members:
                    raise Refused(f"An author of this request is not in {name}, so it may not be read.")

    async def _is_full_member(self, user: str) -> bool:
        """Return whether a user is one of this workspace, and no guest; False also if Slack does not tell."""
        await self._users.look_up((user,), within_s=_PROFILE_WITHIN_S)
        profile = self._users.profile(user)
        if profile is None or profile.is_deactivated:
            return False
        return not profile.is_guest and not profile.is_stranger

    async def _members(self, channel: str) -> frozenset[str]:
        return frozenset(
            [str(each) async for each in self._paged("conversations.members", {"channel": channel}, "members")]
        )

    async def _listed(self) -> list[Found]:
        arguments = {"types": "public_channel,private_channel", "exclude_archived": True, "team_id": self._router.team}
        return [each async for each in self._paged("conversations.list", arguments, "channels")]

    async def _info(self, channel: str) -> Found:
        answer: Found = (await self._called("conversations.info", {"channel": channel}))["channel"]
        return answer

    async def _messages(self, place: Place, arguments: Found, most: int) -> AsyncIterator[ReadMessage]:
        method, count = "conversations.history", 0
        arguments = {**arguments, "channel": place.channel}
        if place.thread_ts:
            method, arguments["ts"] = "conversations.replies", place.thread_ts
        known = await self._client.history.known(place.channel, place.thread_ts or None)
        if known is None:
            pages = self._paged(method, arguments, "messages")
        else:
            pages = _older(known, arguments.get("latest", ""))
        async for found in pages:
            if (message := self._message(found, place.channel)) is not None:
                yield message
                count += 1
            if count >= most:
                return

    def _message(self, found: Found, channel: str) -> ReadMessage | None:
        replies = found.get("reply_count")
        if self._router.is_own_post(found):
            text = plain_text(str(found.get("text") or ""), self._router.bot_user)
            name = str(found.get("username") or "me")
            return ReadMessage(str(found["ts"]), self._router.bot_user, name, "", text, (), replies or 0)
        try:
            message = message_of({**found, "channel": channel}, self._router.team)
        except UNREADABLE:
            return None
        if message is None:
            return None
        text = plain_text("\n\n".join(filter(None, (message.text, message.quoted))), self._router.bot_user)
        author = self._users.author_of(message)
        return ReadMessage(message.ts, message.user, author.name, "", text, message.file_names, replies or 0)

    def _named(self, message: ReadMessage) -> ReadMessage:
        known = self._users.author(message.user)
        name, text = message.name or known.name, self._users.with_ids(message.text)
        return ReadMessage(message.ts, message.user, name, known.tz, text, message.files, message.replies)

    async def _paged(self, method: str, arguments: Found, key: str) -> AsyncIterator[Any]:
        arguments = {"limit": _PAGE, **arguments}
        for _ in range(_MOST_PAGES):
            page = await self._called(method, arguments)
            for each in page.get(key) or ():
                yield each
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return
            arguments = {**arguments, "cursor": cursor}

    async def _called(self, method: str, arguments: Found) -> Found:
        try:
            async with asyncio.timeout(_WITHIN_S):
                answer: Found = await self._client.call(method, arguments, CallSlot(Priority.LOOK_UP))
        except TimeoutError as e:
            raise Refused("Slack did not answer in time. Try again later.") from e
        except SlackCallFailed as e:
            raise Refused(_SENTENCES.get(e.error, f"Slack refuses this ({e.error}).")) from e
        return answer


_SENTENCES = {
    "not_in_channel": "I am not in that channel. People there can invite me with `/invite`.",
    "channel_not_found": "There is no such channel, or I am not in it.",
    "thread_not_found": "There is no such thread.",
    "missing_scope": "The app lacks a permission for this; `amplifier-slack doctor` names it.",
}


async def _older(known: list[Found], latest: str) -> AsyncIterator[Found]:
    for each in known:
        if not latest or float(each["ts"]) < float(latest):
            yield each


def _checked_ts(given: str) -> str:
    if not _TS.fullmatch(given):
        raise Refused(f"{given!r} is not the time of a message, such as 1795527356.212785.")
    return given
