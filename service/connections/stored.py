"""The accounts of people, and the logins in progress, in documents of the run store."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from service.store.base import workspace_of
from service.vault import Sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator_interactive.interactions.records import Key
    from service.sessions.host import HostFunction
    from service.store.base import RunStore
    from service.vault import Vault

log = structlog.get_logger(__name__)

LOGIN_S = 600.0
_ID_BYTES = 24
# Logins in progress of one workspace.
_MOST_LOGINS = 500
CALLBACK = "/oauth/mcp/callback"


class Login(NamedTuple):
    """A login in progress: its person, its server, and the address for the browser."""

    team: str
    id: str
    person: str
    server: str
    url: str
    data: Mapping[str, Any]


class StoredConnections:
    """The accounts of people. A token is stored encrypted, and given only to calls on the authority of its person.

    Args:
        vault, public_url: `None` and blank: no one can connect an account.
        now_s: seconds since the epoch.
    """

    def __init__(
        self, store: RunStore, vault: Vault | None = None, public_url: str = "", now_s: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._vault = vault
        self._public_url = public_url
        self._now_s = now_s

    @property
    def functions(self) -> dict[str, HostFunction]:
        """The functions that sessions may call; see `service.sessions.host`."""
        if self._vault is None:
            return {}
        return {
            "credentials.load": self._load,
            "credentials.save": self._save,
            "credentials.begin": self._begin,
            "credentials.result": self._result,
        }

    async def of_person(self, team: str, person: str) -> dict[str, float]:
        """Return the servers at which a person has connected an account, and when, in seconds since the epoch."""
        found = await self._store.documents(_accounts(team, person))
        return {str(each["server"]): float(each["at_s"]) for each in found.values()}

    async def disconnect(self, team: str, person: str, server: str = "") -> int:
        """Delete the accounts of a person at a server, or everywhere; return their number."""
        count = 0
        for name, each in (await self._store.documents(_accounts(team, person))).items():
            if server in ("", each["server"]):
                count += await self._store.delete_document(_accounts(team, person), name)
        for name, each in (await self._store.documents(_logins(team))).items() if not server else ():
            if each["person"] == person:
                await self._store.delete_document(_logins(team), name)
        return count

    # Functions for sessions

    async def _load(self, key: Key, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        collection, name = self._place(key, arguments)
        document = (await self._store.documents(collection)).get(name)
        if document is None or self._vault is None:
            return {"data": None}
        place, vault = f"{collection}/{name}", self._vault
        try:
            data = vault.open(document["sealed"], place)
        except Sealed as e:  # the person connects it again
            log.error("connection.unreadable", server=document["server"], error=str(e))  # noqa: TRY400 - no traceback
            return {"data": None}
        if not vault.is_current(document["sealed"]):
            again = {**document, "sealed": vault.seal(data, place)}
            await self._store.replace_document(collection, name, document, again)
        return {"data": data}

    async def _save(self, key: Key, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store the data of an account; with `known`, only if these are the stored data."""
        assert self._vault is not None  # noqa: S101 - the function exists only then
        collection, name = self._place(key, arguments)
        server, place = str(arguments["server"]).partition(" ")[0], f"{collection}/{name}"
        data = {"server": server, "at_s": round(self._now_s()), "sealed": self._vault.seal(arguments["data"], place)}
        if "known" not in arguments:
            await self._store.put_document(collection, name, data)
            return {}
        while (document := (await self._store.documents(collection)).get(name)) is not None:
            is_known = True
            with suppress(Sealed):  # a process with a newer key has sealed the same data anew
                is_known = self._vault.open(document["sealed"], place) == arguments["known"]
            if not is_known or await self._store.replace_document(collection, name, document, data):
                break
        return {}

    @staticmethod
    def _place(key: Key, arguments: Mapping[str, Any]) -> tuple[str, str]:
        team = workspace_of(key.conversation_id)
        return _accounts(team, str(arguments["person"])), _digest(str(arguments["server"]))

    async def _begin(self, key: Key, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Begin a login; return the link for its person. Without a `state`, return only where logins end."""
        place = {"redirect_url": f"{self._public_url}{CALLBACK}"}
        if "state" not in arguments:
            return place
        assert self._vault is not None  # noqa: S101 - the function exists only then
        team, now_s = workspace_of(key.conversation_id), self._now_s()
        person, server = str(arguments["person"]), str(arguments["server"])
        collection, own, link = _logins(team), _digest(f"{person} {server}"), secrets.token_urlsafe(_ID_BYTES)
        for name, each in (await self._store.documents(collection)).items():
            if each["until_s"] < now_s:
                await self._store.delete_document(collection, name)
            elif name == own:  # its person may have the link already: it leads to the new login
                with suppress(Sealed):
                    link = self._vault.open(each["link"], f"{collection}/{own}")
        login = {
            "person": person,
            "server": server,
            "url": str(arguments["url"]),
            "state": _digest(str(arguments["state"])),
            "until_s": now_s + LOGIN_S,
            "link": self._vault.seal(link, f"{collection}/{own}"),
            "link_digest": _digest(link),
        }
        await self._store.put_document(collection, own, login, _MOST_LOGINS)
        return {**place, "link": f"{self._public_url}/connect/{team}/{link}"}

    async def _result(self, key: Key, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of a login once, and empty before."""
        assert self._vault is not None  # noqa: S101 - the function exists only then
        collection, state = _logins(workspace_of(key.conversation_id)), _digest(str(arguments["state"]))
        for name, each in (await self._store.documents(collection)).items():
            if each["state"] == state and each["until_s"] >= self._now_s():
                if "sealed" not in each:
                    return {}
                await self._store.delete_document(collection, name)
                result: Mapping[str, Any] = self._vault.open(each["sealed"], f"{collection}/{name}")
                return result
        return {"error": "the link has expired"}

    # For the browser

    async def login_of_link(self, team: str, link: str) -> Login | None:
        """Return the login with a link, unless it is over."""
        return await self._login(team, lambda each: secrets.compare_digest(each["link_digest"], _digest(link)))

    async def open_link(self, login: Login, browser: str) -> bool:
        """Bind a login to the browser that opened its link first; return whether it is this one."""
        known = login.data.get("browser")
        if known is not None:
            return secrets.compare_digest(str(known), _digest(browser))
        return await self._replace(login, {**login.data, "browser": _digest(browser)})

    async def finish(self, team: str, state: str, browser: str, result: Mapping[str, Any]) -> Login | None:
        """Store the result of a login, once, if it comes from the browser that opened its link."""
        assert self._vault is not None  # noqa: S101 - the server exists only then
        login = await self._login(team, lambda each: secrets.compare_digest(each["state"], _digest(state)))
        if login is None or not secrets.compare_digest(str(login.data.get("browser")), _digest(browser)):
            return None
        sealed = self._vault.seal(dict(result), f"{_logins(team)}/{login.id}")
        return login if await self._replace(login, {**login.data, "sealed": sealed}) else None

    async def _login(self, team: str, is_it: Callable[[Mapping[str, Any]], bool]) -> Login | None:
        for name, each in (await self._store.documents(_logins(team))).items():
            if is_it(each) and each["until_s"] >= self._now_s() and "sealed" not in each:
                return Login(team, name, each["person"], each["server"], each["url"], each)
        return None

    async def _replace(self, login: Login, data: Mapping[str, Any]) -> bool:
        return await self._store.replace_document(_logins(login.team), login.id, login.data, data)


def _accounts(team: str, person: str) -> str:
    return f"accounts:{team}:{person}"


def _logins(team: str) -> str:
    return f"logins:{team}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
