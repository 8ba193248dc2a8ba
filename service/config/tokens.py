"""Slack credentials and transport, from the environment and the configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from connector import HttpTransport, SlackCredentials, SocketTransport
from service.config.config import ConfigError
from service.config.slack import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import SecretStr

    from service.config.config import Environment
    from service.config.slack import SlackConfig

_TOKEN = re.compile(r"[\w.-]+", re.ASCII)


def slack_access(config: SlackConfig, environment: Environment, health: Callable[[], str] = str) -> SlackCredentials:
    """Read the tokens and the Web API's URL; `health` is passed to `HttpTransport`.

    Raises:
        ConfigError: a token or the URL is missing or invalid.
    """
    transport: SocketTransport | HttpTransport
    if config.transport == "socket":
        transport = SocketTransport(app_token(environment))
    else:
        transport = HttpTransport(signing_secret(environment), *address_of(config.listen), health)
    return SlackCredentials(bot_token=bot_token(environment), api_url=api_url(environment), transport=transport)


def api_url(environment: Environment) -> str:
    """Return the Web API's base URL with a trailing slash.

    Raises:
        ConfigError: SLACK_API_URL is not a URL.
    """
    url = environment.slack_api_url
    try:
        reachable = bool(urlsplit(url).hostname) and url.startswith(("http://", "https://"))
    except ValueError:
        reachable = False
    if not reachable:
        raise ConfigError(f"SLACK_API_URL is not a valid URL: {url!r}. Example: https://slack.com/api/.")
    return url if url.endswith("/") else f"{url}/"


def bot_token(environment: Environment) -> str:
    return _token("SLACK_BOT_TOKEN", "xoxb-", environment.slack_bot_token)


def app_token(environment: Environment) -> str:
    return _token("SLACK_APP_TOKEN", "xapp-", environment.slack_app_token)


def config_token(environment: Environment) -> str | None:
    """Return the token that can read the app's settings; `None` if it is not set."""
    given = environment.slack_config_token
    return None if given is None else _token("SLACK_CONFIG_TOKEN", "xoxe", given)


def signing_secret(environment: Environment) -> str:
    given, where = environment.slack_signing_secret, "your app's page under Basic Information → App Credentials"
    if given is None:
        raise ConfigError(f"SLACK_SIGNING_SECRET is not set: `transport: http` requires it. Copy it from {where}.")
    secret = given.get_secret_value()
    if secret.startswith(("xoxb-", "xapp-", "xoxp-", "xoxe")):
        raise ConfigError(f"SLACK_SIGNING_SECRET is a token, not a signing secret. Copy the secret from {where}.")
    return _checked("SLACK_SIGNING_SECRET", secret)


def _token(variable: str, prefix: str, token: SecretStr | None) -> str:
    if token is None:
        raise ConfigError(f"{variable} is not set. Set it to your Slack app's token ({prefix}…).")
    if not token.get_secret_value().startswith(prefix):
        raise ConfigError(f"{variable} does not begin with {prefix}: it is a different kind of token.")
    return _checked(variable, token.get_secret_value())


def _checked(variable: str, secret: str) -> str:
    if not _TOKEN.fullmatch(secret):
        raise ConfigError(f"{variable} has invalid characters. Copy it again, without spaces or line breaks.")
    return secret
