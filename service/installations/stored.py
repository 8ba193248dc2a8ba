"""The installations of the app, with encrypted tokens, in documents of the run store."""

from __future__ import annotations

import asyncio
import base64
import math
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
from slack_sdk.oauth.state_store.async_state_store import AsyncOAuthStateStore

from connector.setup import Installation, NotInstalled
from connector.slack_api.errors import failure
from service.vault import Sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slack_sdk.oauth.installation_store import Installation as SlackInstallation
    from slack_sdk.web.async_client import AsyncWebClient

    from service.config.credentials import Client
    from service.store.base import RunStore
    from service.vault import Vault

log = structlog.get_logger(__name__)

STATE_S = 600.0
# Most installations of one service, and used states that are stored.
MOST, _MOST_STATES = 5_000, 10_000
# Slack's errors for the token of an ended installation.
_ENDED = {"account_inactive", "invalid_auth", "token_expired", "token_revoked"}
# A token is renewed so long before its end; while one process renews it, the others wait.
_RENEW_BEFORE_S, _RENEWING_S = 7_200.0, 60.0
# Every workspace asks for its token each minute: one read serves many.
_READ_EVERY_S = 10.0
_INSTALLATIONS, _STATES = "installations", "installation_states"
_STATE_BYTES = 24


class InstalledApp(NamedTuple):
    """An installation, for operators. `name` is that of the workspace or organisation, `by` the user who installed it.

    `until_s` is the end of the token; 0: it has none.
    """

    id: str
    name: str
    by: str
    at_s: float
    until_s: float


class StoredInstallations(AsyncInstallationStore):
    """Implements `connector.setup.Installations`, and what slack-bolt's OAuth flow needs of a store.

    Args:
        client: of the app, for renewals; `None` for commands, which renew nothing.
        web: a client of the Web API without a token.
        now_s: seconds since the epoch.
    """

    def __init__(
        self,
        store: RunStore,
        vault: Vault,
        client: Client | None,
        web: AsyncWebClient | None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._vault = vault
        self._client = client
        self._web = web
        self._now_s = now_s
        # All documents, and when they were read.
        self._read: tuple[float, dict[str, dict[str, Any]]] = (-math.inf, {})
        self._renewals: set[asyncio.Task[str]] = set()

    # For the connector

    async def all(self) -> Sequence[Installation]:
        """Return the present installations."""
        return [Installation(each["team"], each["enterprise"]) for each in (await self._fresh()).values()]

    async def token(self, installation_id: str) -> str:
        """Return the bot's token, renewed in time; see the protocol.

        If a token cannot be renewed now, the present one is returned.
        """
        document = (await self._documents()).get(installation_id)
        if document is None:
            raise NotInstalled
        try:
            tokens = self._vault.open(document["sealed"], _place(installation_id))
        except Sealed as e:
            log.error("installation.unreadable", installation=installation_id, problem=str(e))  # noqa: TRY400 - no traceback
            raise NotInstalled from e
        now_s = self._now_s()
        is_claimed = document["renewing_s"] + _RENEWING_S >= now_s
        if 0 < document["until_s"] - _RENEW_BEFORE_S < now_s and not is_claimed and self._client is not None:
            claimed = {**document, "renewing_s": now_s}
            if not await self._replace(installation_id, document, claimed):
                return await self.token(installation_id)
            # Not cancelled with its caller: Slack accepts a refresh token once, so the answer has to be stored.
            renewal = asyncio.create_task(self._renewed(installation_id, tokens))
            self._renewals.add(renewal)
            renewal.add_done_callback(self._renewals.discard)
            return await asyncio.shield(renewal)
        if not is_claimed and not self._vault.is_current(document["sealed"]):
            again = {**document, "sealed": self._vault.seal(tokens, _place(installation_id))}
            await self._replace(installation_id, document, again)
        return str(tokens["token"])

    async def end(self, installation_id: str) -> None:
        """Remove an installation, if Slack no longer accepts its token; see the protocol."""
        if self._web is None:
            return
        while (document := (await self._fresh()).get(installation_id)) is not None:
            try:
                token = self._vault.open(document["sealed"], _place(installation_id))["token"]
                await self._web.auth_test(token=token)
            except SlackApiError as e:
                if failure("auth.test", e).error not in _ENDED:
                    raise
            except Sealed:
                pass
            else:
                return  # it was installed again
            await self._delete(installation_id, document)

    async def drained(self) -> None:
        """Wait until the renewals at work are stored."""
        if self._renewals:
            await asyncio.wait(self._renewals)

    async def _renewed(self, installation_id: str, tokens: dict[str, str]) -> str:
        """Exchange the refresh token and store the new ones, also if the installation was changed in the meantime."""
        assert self._client is not None and self._web is not None  # noqa: S101, PT018 - `token` has looked
        try:
            answer = await self._web.oauth_v2_access(
                client_id=self._client.id,
                client_secret=self._client.secret,
                grant_type="refresh_token",
                refresh_token=tokens["refresh"],
            )
            given = {"token": str(answer["access_token"]), "refresh": str(answer["refresh_token"])}
            until_s = self._now_s() + float(answer["expires_in"])
        except (SlackApiError, aiohttp.ClientError, OSError, KeyError, TypeError, ValueError) as e:
            problem = failure("oauth.v2.access", e).error if isinstance(e, SlackApiError) else type(e).__name__
            log.error("installation.not_renewed", installation=installation_id, problem=problem)  # noqa: TRY400 - tokens
            return tokens["token"]
        while (document := (await self._fresh()).get(installation_id)) is not None:
            with suppress(Sealed):  # a process with a newer key has sealed the same tokens anew
                present = self._vault.open(document["sealed"], _place(installation_id))
                if present["refresh"] != tokens["refresh"]:  # it was installed again
                    return str(present["token"])
            sealed = self._vault.seal(given, _place(installation_id))
            renewed = {**document, "sealed": sealed, "until_s": until_s, "renewing_s": 0.0}
            if await self._replace(installation_id, document, renewed):
                log.info("installation.renewed", installation=installation_id)
                break
        return given["token"]

    # For operators

    async def listed(self) -> list[InstalledApp]:
        """Return the installations, the latest first."""
        found = await self._documents()
        return [
            InstalledApp(name, each["name"], each["by"], each["at_s"], each["until_s"]) for name, each in found.items()
        ]

    async def remove(self, installation_id: str) -> bool:
        """Remove an installation with its tokens; return whether it existed."""
        return await self._delete(installation_id)

    # For the OAuth flow

    async def async_save(self, installation: SlackInstallation) -> None:
        """Store an installation in place of an earlier one."""
        is_of_org = bool(installation.is_enterprise_install)
        installation_id = str(installation.enterprise_id if is_of_org else installation.team_id)
        tokens = {"token": installation.bot_token, "refresh": installation.bot_refresh_token}
        expires_at = installation.bot_token_expires_at
        document = {
            "team": "" if is_of_org else installation_id,
            "enterprise": installation.enterprise_id or "",
            "name": (installation.enterprise_name if is_of_org else installation.team_name) or "",
            "by": installation.user_id,
            "at_s": self._now_s(),
            "until_s": float(expires_at) if expires_at and installation.bot_refresh_token else 0.0,
            "renewing_s": 0.0,
            "sealed": self._vault.seal(tokens, _place(installation_id)),
        }
        await self._store.put_document(_INSTALLATIONS, installation_id, document, MOST)

    async def has_room(self, installation_id: str) -> bool:
        """Return whether one more installation can be stored; a known one always can."""
        found = await self._fresh()
        return installation_id in found or len(found) < MOST

    async def _fresh(self) -> dict[str, dict[str, Any]]:
        self._read = (-math.inf, {})
        return await self._documents()

    async def _documents(self) -> dict[str, dict[str, Any]]:
        read_s, documents = self._read
        if self._now_s() - read_s > _READ_EVERY_S:
            documents = await self._store.documents(_INSTALLATIONS)
            self._read = (self._now_s(), documents)
        return documents

    async def _replace(self, name: str, known: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        self._read = (-math.inf, {})
        return await self._store.replace_document(_INSTALLATIONS, name, known, data)

    async def _delete(self, name: str, known: Mapping[str, Any] | None = None) -> bool:
        self._read = (-math.inf, {})
        return await self._store.delete_document(_INSTALLATIONS, name, known)


class StoredStates(AsyncOAuthStateStore):
    """The states of installations in progress: each is valid once, for ten minutes, at any replica.

    A state is its encrypted time. Only used ones are stored, so that no request displaces the states of others; beyond
    a bound, the earliest used ones are forgotten. A state is of use only in the browser that has its cookie.
    """

    def __init__(self, store: RunStore, vault: Vault, now_s: Callable[[], float] = time.time) -> None:
        self._store = store
        self._vault = vault
        self._now_s = now_s

    async def async_issue(self, *_: Any, **__: Any) -> str:
        """Return a new state."""
        state = {"until_s": self._now_s() + STATE_S, "id": secrets.token_urlsafe(_STATE_BYTES)}
        return base64.urlsafe_b64encode(self._vault.seal(state, _STATES).encode()).decode().rstrip("=")

    async def async_consume(self, state: str) -> bool:
        """Use a state up; return whether it was valid."""
        try:
            given = self._vault.open(base64.urlsafe_b64decode(f"{state}===").decode(), _STATES)
        except (Sealed, ValueError):
            return False
        if given["until_s"] < self._now_s():
            return False
        # Random: the store takes the same data for a repeated call.
        used = {"use": secrets.token_urlsafe(_STATE_BYTES)}
        return await self._store.replace_document(_STATES, given["id"], {}, used, _MOST_STATES)


def _place(installation_id: str) -> str:
    return f"{_INSTALLATIONS}/{installation_id}"
