"""The secrets of this process, to be hidden in logs and output."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pydantic import SecretStr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.config.config import Environment, ServiceConfig

_SECRET_OPTION = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)
# Up to the last @: an unquoted password may contain any character.
_WITH_PASSWORD = re.compile(r"//[^:]*:(.+)@.*", re.DOTALL)
_WITHOUT_PASSWORD = ("memory", "sqlite")


def secrets(environment: Environment, config: ServiceConfig | None = None, *more: str) -> tuple[str, ...]:
    """Collect the secrets of the environment, the secret options of modules, and the passwords in URLs.

    `more` are further URLs, such as those of command options.
    """
    store = environment.amplifier_slack_store
    tokens = (value for _, value in environment if isinstance(value, SecretStr) and value is not store)
    given = [token.get_secret_value() for token in tokens]
    urls = [store] if store else []
    urls += [config.store] if config else []
    given += [secret for url in (*(u.get_secret_value() for u in urls), *more) for secret in passwords(url)]
    given += _password_in(environment.slack_api_url)
    given += _password_in(os.environ.get("ANTHROPIC_BASE_URL", ""))
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
        case str() if _SECRET_OPTION.search(name):
            yield value
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
