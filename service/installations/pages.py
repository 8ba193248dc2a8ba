"""The pages on which people install the app, with slack-bolt's OAuth flow."""

from __future__ import annotations

import html
import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import structlog
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.error import BoltError
from slack_bolt.oauth.async_callback_options import AsyncCallbackOptions
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_bolt.oauth.async_oauth_settings import AsyncOAuthSettings
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError

from connector.setup import BOT_SCOPES
from orchestrator_interactive.storage.errors import StoreError
from service.config.installations import INSTALL, RETURN
from service.installations.stored import STATE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web
    from slack_bolt.oauth.async_callback_options import AsyncFailureArgs, AsyncSuccessArgs
    from slack_bolt.request.async_request import AsyncBoltRequest
    from slack_sdk.oauth.installation_store import Installation
    from slack_sdk.web.async_client import AsyncWebClient

    from connector.inbound.bounded_server import InTime
    from service.config.credentials import Client
    from service.config.installations import InstallationsConfig
    from service.installations.stored import StoredInstallations, StoredStates

    Handle = Callable[[AsyncBoltRequest], Awaitable[BoltResponse]]

log = structlog.get_logger(__name__)

_STYLE = "body{font:18px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em}"
_BUTTON = (
    "display:inline-block;padding:.6em 1.2em;border-radius:.4em;background:#4a154b;color:#fff;text-decoration:none"
)
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_PROBLEMS = {
    "access_denied": "Nothing was installed: you did not allow it.",
    "invalid_browser": "This page belongs to another browser, or its cookie is gone.",
    "invalid_state": "This installation is over: it was used, or more than ten minutes have passed.",
}
_AGAIN = f"<p><a href='{INSTALL}'>Begin again</a></p>"
_NO_ANSWER = (
    f"<h1>No answer</h1><p>Slack or the store did not answer in time, so the app may not be installed.</p>{_AGAIN}"
)
_ID = re.compile(r"[TE][A-Z0-9]{1,40}")


class NotAllowed(BoltError):  # noqa: N818 - a state
    """The app may not be installed there, or not in this way. The message is a sentence for people."""


class InstallationPages:
    """Serves `GET /slack/install`, and the page to which Slack returns.

    Args:
        names: returns the names of the agents.
        web: a client of the Web API without a token.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of the flow
        self,
        config: InstallationsConfig,
        names: Callable[[], list[str]],
        client: Client,
        public_url: str,
        web: AsyncWebClient,
        installations: StoredInstallations,
        states: StoredStates,
    ) -> None:
        site = urlsplit(web.base_url)
        settings = AsyncOAuthSettings(
            client_id=client.id,
            client_secret=client.secret,
            scopes=[each.name for each in BOT_SCOPES],
            redirect_uri=f"{public_url}{RETURN}",
            install_path=INSTALL,
            redirect_uri_path=RETURN,
            callback_options=AsyncCallbackOptions(self._on_success, self._on_failure),
            authorization_url=f"{site.scheme}://{site.netloc}/oauth/v2/authorize",
            installation_store=installations,
            state_store=states,
            state_expiration_seconds=int(STATE_S),
        )
        self._flow = _Flow(config, names, web, settings, installations)

    def add_routes(self, router: web.UrlDispatcher, in_time: InTime) -> None:
        """Add the paths of the pages, which do their work by `in_time`."""
        router.add_get(INSTALL, partial(_answered, in_time, self._flow.handle_installation))
        router.add_get(RETURN, partial(_answered, in_time, self._flow.handle_callback))

    async def _on_success(self, args: AsyncSuccessArgs) -> BoltResponse:
        found = args.installation
        is_of_org = bool(found.is_enterprise_install)
        place = (found.enterprise_name if is_of_org else found.team_name) or found.enterprise_id or found.team_id
        log.info("installation.stored", installation=found.enterprise_id if is_of_org else found.team_id)
        more = "In Slack, write <code>/invite @</code> in a channel, and choose the app."
        if is_of_org:
            manage = f"https://app.slack.com/manage/{found.enterprise_id}/integrations/profile/{found.app_id}"
            more = f"Now <a href='{html.escape(manage)}/workspaces/add'>choose the workspaces</a> that may use it."
        return _page(200, f"<h1>Installed in {html.escape(str(place))}</h1><p>{more}</p>")

    async def _on_failure(self, args: AsyncFailureArgs) -> BoltResponse:
        if isinstance(args.error, NotAllowed):
            return _page(403, f"<h1>Not installed</h1><p>{html.escape(str(args.error))}</p>")
        log.info("installation.failed", reason=args.reason)
        text = _PROBLEMS.get(args.reason, f"Slack did not complete the installation ({html.escape(args.reason)}).")
        return _page(args.suggested_status_code, f"<h1>Not installed</h1><p>{text}</p>{_AGAIN}")


class _Flow(AsyncOAuthFlow):
    """Bolt's flow, with our page, and only for workspaces that may install the app."""

    def __init__(
        self,
        config: InstallationsConfig,
        names: Callable[[], list[str]],
        web: AsyncWebClient,
        settings: AsyncOAuthSettings,
        installations: StoredInstallations,
    ) -> None:
        super().__init__(client=web, settings=settings, logger=logging.getLogger(__name__))
        self._config = config
        self._names = names
        self._installations = installations

    async def build_authorize_url(self, state: str, request: AsyncBoltRequest) -> str:
        """Return the address of Slack's page; `team` of the request chooses a place there."""
        team = request.query.get("team", [""])[0]  # the generator encodes nothing
        return self.settings.authorize_url_generator.generate(state, team if _ID.fullmatch(team) else None)

    async def build_install_page_html(self, url: str, request: AsyncBoltRequest) -> str:
        """Return the page that leads to Slack."""
        del request  # it is the same for all
        names = html.escape(" and ".join(self._names()))
        return _body(
            f"<h1>Add {names} to Slack</h1><p>{names} work{'s' if len(self._names()) == 1 else ''} with you in threads:"
            " write during the work, and stop it at any time. Slack shows the permissions of the app before"
            f" you allow it.</p><p><a style='{_BUTTON}' href='{html.escape(url)}'>Add to Slack</a></p>"
        )

    async def append_set_cookie_headers(self, headers: dict[str, Any], set_cookie_value: str | None) -> dict[str, Any]:
        """Add the headers of our pages to those of Bolt."""
        await super().append_set_cookie_headers(headers, set_cookie_value)
        return {**headers, **_HEADERS}

    async def store_installation(self, request: AsyncBoltRequest, installation: Installation) -> None:
        """Store an installation, or give the token of one back that is not allowed."""
        if not installation.bot_token:  # only scopes of the person were allowed
            raise NotAllowed(f"Slack gave no token for the bot. Open {INSTALL} again and change nothing.")
        ids = [each for each in (installation.team_id, installation.enterprise_id) if each]
        name = installation.team_name or installation.enterprise_name or "This workspace"
        refusal = f"{name} may not use this service. Ask its operator to allow {' or '.join(ids)}."
        if self._config.may_install(*ids):
            place = installation.enterprise_id if installation.is_enterprise_install else installation.team_id
            if await self._installations.has_room(str(place)):
                await super().store_installation(request, installation)
                return
            refusal = "This service has as many workspaces as it can serve. Ask its operator."
        log.warning("installation.refused", workspace=installation.team_id, organisation=installation.enterprise_id)
        try:
            await self.client.auth_revoke(token=installation.bot_token)
        except (SlackApiError, aiohttp.ClientError, OSError) as e:
            log.warning("installation.not_revoked", problem=type(e).__name__)
        raise NotAllowed(refusal)


async def _answered(in_time: InTime, handle: Handle, request: web.Request) -> web.Response:
    given = await to_bolt_request(request)

    async def work() -> web.Response:
        return await to_aiohttp_response(await handle(given))

    try:
        return await in_time(work)
    except (aiohttp.ClientError, OSError, StoreError) as e:  # among them TimeoutError
        log.warning("installation.no_answer", problem=type(e).__name__)
        return await to_aiohttp_response(_page(503, _NO_ANSWER))


def _page(status: int, text: str) -> BoltResponse:
    return BoltResponse(status=status, body=_body(text), headers=dict(_HEADERS))


def _body(text: str) -> str:
    return f"<!doctype html><meta charset=utf-8><title>Add to Slack</title><style>{_STYLE}</style>{text}"
