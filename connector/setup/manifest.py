"""The manifest of the Slack app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.setup.scopes import BOT_EVENTS, BOT_SCOPES

if TYPE_CHECKING:
    from collections.abc import Sequence

# https://docs.slack.dev/reference/app-manifest and https://github.com/slackapi/manifest-schema
_MOST_NAME = 35
_MOST_BOT_NAME = 80
# Bound for the names in the description, which may have 140 characters.
_MOST_WHO = 55


def manifest(names: Sequence[str], request_url: str | None = None) -> dict[str, Any]:
    """Return the manifest of an app for agents with these names; the app is named after the first.

    `request_url` is the address for events over HTTP; `None`: Socket Mode.
    """
    to_url = {} if request_url is None else {"request_url": request_url}
    who = _cut(" and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part), _MOST_WHO)
    description = f"Works with you in threads: {who}. Reply to steer the work, and stop it at any time."
    return {
        "display_information": {"name": _cut(names[0], _MOST_NAME), "description": description},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": _cut(names[0], _MOST_BOT_NAME), "always_online": True},
            "agent_view": {"agent_description": description},
        },
        "oauth_config": {"scopes": {"bot": [each.name for each in BOT_SCOPES]}},
        "settings": {
            "event_subscriptions": {**to_url, "bot_events": [each.name for each in BOT_EVENTS]},
            "interactivity": {"is_enabled": True, **to_url},
            "org_deploy_enabled": False,
            "socket_mode_enabled": request_url is None,
            "token_rotation_enabled": False,
        },
    }


def _cut(text: str, most: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= most else f"{plain[: most - 1].rstrip()}…"
