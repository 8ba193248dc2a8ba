"""The methods by which an app gets, renews and gives back its tokens."""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import TYPE_CHECKING

from local_slack.methods.calls import page_of
from local_slack.methods.rate_limits import TIER_2, TIER_3, TIER_4
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from aiohttp import web

    from local_slack.json_limits import Json
    from local_slack.methods.app import App
    from local_slack.methods.calls import Arguments
    from local_slack.workspace.installations import Installations

OAUTH_LIMITS = {
    "apps.uninstall": TIER_2,
    "auth.revoke": TIER_3,
    "auth.teams.list": TIER_2,
    "oauth.v2.access": TIER_4,
}
# Methods about a whole workspace: the token of an organisation has to name one.
_OF_A_TEAM = ("conversations.list", "team.info", "usergroups.list", "users.conversations", "users.list")


def answer_of(  # noqa: PLR0913, PLR0917 - the parts of a call
    name: str, args: Arguments, token: str, client: tuple[str, str], installations: Installations, app: App
) -> Json:
    """Answer one of the methods of ``OAUTH_LIMITS``; ``client`` are the id and the secret in the header."""
    if installations.client is None:
        raise SlackRefused("invalid_client_id" if name == "oauth.v2.access" else "feature_not_enabled")
    if name == "oauth.v2.access":
        _check_client(args, client, installations)
        return _access(args, installations, app)
    if error := ("not_authed" if not token else installations.problem(token)):
        raise SlackRefused(error)
    if name == "auth.teams.list":
        if not installations.is_of_organisation(token):
            raise SlackRefused("not_allowed_token_type")
        teams, cursor = page_of(installations.granted, args, 100)
        return {"teams": list(teams), "response_metadata": {"next_cursor": cursor}}
    if name == "apps.uninstall":
        _check_client(args, client, installations)
    installations.end(token)
    return {"revoked": True} if name == "auth.revoke" else {}


def check_team(name: str, args: Arguments, token: str, installations: Installations) -> None:
    """Refuse a call with the token of an organisation that does not name its team."""
    if name in _OF_A_TEAM and not args.has("team_id") and installations.is_of_organisation(token):
        raise SlackRefused("missing_argument", "[ERROR] missing required field: team_id")


def client_of(request: web.Request) -> tuple[str, str]:
    """Return the id and secret of a basic authorization; blank without one."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, secret


def _check_client(args: Arguments, client: tuple[str, str], installations: Installations) -> None:
    known = installations.client
    given_id, given_secret = args.text("client_id") or client[0], args.text("client_secret") or client[1]
    if known is None or given_id != known.id:
        raise SlackRefused("invalid_client_id")
    if not secrets.compare_digest(given_secret.encode(), known.secret.encode()):
        raise SlackRefused("bad_client_secret")


def _access(args: Arguments, installations: Installations, app: App) -> Json:
    is_for_bot = True
    match args.text("grant_type") or "authorization_code":
        case "authorization_code":
            code, uri = args.text("code") or "", args.text("redirect_uri")
            place, person, is_for_bot = installations.exchange(code, uri)
        case "refresh_token":
            place, person = installations.refresh(args.text("refresh_token") or ""), ""
        case _:
            raise SlackRefused("invalid_grant_type")
    answer: Json = {"app_id": app.bot.app_id, "incoming_webhook": None}
    if person:
        answer["authed_user"] = {"id": person}
    if is_for_bot:
        answer["scope"] = ",".join(sorted(app.scopes))
    else:
        answer["authed_user"] |= {"access_token": f"xoxp-{secrets.token_hex(16)}", "token_type": "user"}
    return answer | installations.given(place, is_for_bot=is_for_bot)
