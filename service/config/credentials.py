"""Slack credentials of the environment, and all secrets of this process, to be hidden in logs and output."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from connector import HttpTransport, SlackCredentials, SocketTransport
from service.config.config_errors import ConfigError
from service.config.references import SECRET_OPTION
from service.config.slack import address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from service.config.config import Environment, ServiceConfig
    from service.config.slack import SlackConfig

# Where Slack shows each token, by its prefix.
_WHERE = {
    "xoxb-": "api.slack.com/apps → your app → OAuth & Permissions → Bot User OAuth Token",
    "xapp-": "api.slack.com/apps → your app → Basic Information → App-Level Tokens, with the scope connections:write",
    "xoxe": "api.slack.com/apps → Your App Configuration Tokens",
}
_TOKEN = re.compile(r"[\w.-]+", re.ASCII)
# Up to the last @: an unquoted password may contain any character.
_WITH_PASSWORD = re.compile(r"//[^:]*:(.+)@.*", re.DOTALL)
_WITHOUT_PASSWORD = ("memory", "sqlite")


def secrets(environment: Environment, config: ServiceConfig | None = None, *more: str) -> tuple[str, ...]:
    """Collect the secrets of the environment, the secrets of modules and triggers, and the passwords in URLs.

    `more` are further URLs, such as those of command options.
    """
    store = environment.amplifier_slack_store
    tokens = (value for _, value in environment if isinstance(value, SecretStr) and value is not store)
    given = [token.get_secret_value() for token in tokens]
    urls = [store] if store else []
    urls += [config.store] if config else []
    given += [secret for url in (*(u.get_secret_value() for u in urls), *more) for secret in passwords(url)]
    given += _password_in(environment.slack_api_url)
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        given += _password_in(os.environ.get(name, ""))
    given += [each.secret.get_secret_value() for each in config.triggers.endpoints.values()] if config else []
    given += [each.get_secret_value() for each in config.connections.keys.values()] if config else []
    for instance in config.instances.values() if config else ():
        for module in instance.modules():
            given += secret_options(module.config)
    return tuple(given)


def secret_options(value: Any, name: str = "") -> Iterator[str]:
    """Return the values of module options whose name marks a secret (key, token, …), at any depth."""
    match value:
        case dict():
            for key, item in value.items():
                yield from secret_options(item, str(key))
        case list():
            for item in value:
                yield from secret_options(item, name)
        case str() if SECRET_OPTION.search(name):
            yield value
        case str() if name.lower() == "authorization":  # "Bearer …" among HTTP headers
            yield value.rpartition(" ")[2]
        case str():
            yield from _password_in(value)


def _password_in(address: str) -> tuple[str, ...]:
    """Return the password in a text, if the text is a URL with a password."""
    return passwords(address) if "://" in address and "@" in address else ()


def passwords(url: str) -> tuple[str, ...]:
    """Return the password of a URL. If the text is not a URL, return all of it: it may be a misplaced password."""
    scheme, _, rest = url.partition(":")
    if match := _WITH_PASSWORD.fullmatch(rest):
        return (match[1], unquote(match[1]))
    return () if rest.startswith("//") or scheme in _WITHOUT_PASSWORD else (url, scheme)


def slack_access(
    config: SlackConfig, environment: Environment, health: Callable[[], str] = str, *, has_installations: bool = False
) -> SlackCredentials:
    """Read the tokens and the Web API's URL; `health` is passed to `HttpTransport`.

    An app that `has_installations` has a bot's token for each, and none in the environment.

    Raises:
        ConfigError: tokens or the URL are missing or invalid; one line for each.
    """
    problems: list[str] = []

    def read(reader: Callable[[Environment], str]) -> str:
        try:
            return reader(environment)
        except ConfigError as e:
            problems.append(str(e))
            return ""

    bot, url = "" if has_installations else read(bot_token), read(api_url)
    if has_installations:
        read(lambda given: client_of(given).id)
    transport: SocketTransport | HttpTransport
    if config.transport == "socket":
        transport = SocketTransport(read(app_token))
    else:
        transport = HttpTransport(read(signing_secret), *address_of(config.listen), health)
    if problems:
        raise ConfigError("\n".join(problems))
    return SlackCredentials(bot_token=bot, api_url=url, transport=transport)


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


class Client(NamedTuple):
    """The credentials of the app for installing it."""

    id: str
    secret: str


def client_of(environment: Environment) -> Client:
    """Return the id and the secret of the app.

    Raises:
        ConfigError: one is not set, or there is a bot's token too.
    """
    if environment.slack_bot_token is not None:
        raise ConfigError(
            "SLACK_BOT_TOKEN is the token of one workspace, and `installations` are many. Unset it: each installation "
            "has its own token."
        )
    if not environment.slack_client_id or environment.slack_client_secret is None:
        missing = "SLACK_CLIENT_SECRET" if environment.slack_client_id else "SLACK_CLIENT_ID"
        raise ConfigError(
            f"{missing} is not set: `installations` require it. Copy it from your app's page under Basic Information "
            "→ App Credentials."
        )
    return Client(environment.slack_client_id, environment.slack_client_secret.get_secret_value())


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
        raise ConfigError(f"{variable} is not set. Set it to your Slack app's token ({prefix}…): {_WHERE[prefix]}.")
    if not token.get_secret_value().startswith(prefix):
        raise ConfigError(f"{variable} does not begin with {prefix}: it is a different kind of token.")
    return _checked(variable, token.get_secret_value())


def _checked(variable: str, secret: str) -> str:
    if not _TOKEN.fullmatch(secret):
        raise ConfigError(f"{variable} has invalid characters. Copy it again, without spaces or line breaks.")
    return secret
