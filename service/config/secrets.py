"""The secrets that this process knows, so that its log can hide them."""

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
# Up to the last @: in a password that is not quoted there may be any sign.
_WITH_PASSWORD = re.compile(r"//[^:]*:(.+)@.*", re.DOTALL)
_WITHOUT_PASSWORD = ("memory", "sqlite")


def secrets(environment: Environment, config: ServiceConfig | None = None, *more: str) -> tuple[str, ...]:
    """Those of the environment, the modules' options that are called so, and the passwords in addresses.

    `more` are URLs that were given otherwise.
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
    """The texts in the options of a module that are called as secrets are, however deep."""
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
    """The password in a text, if it is an address with one."""
    return passwords(address) if "://" in address and "@" in address else ()


def passwords(url: str) -> tuple[str, ...]:
    """The password; where it is no URL, all of it: it may be a password in the wrong place."""
    scheme, _, rest = url.partition(":")
    if match := _WITH_PASSWORD.fullmatch(rest):
        return (match[1], unquote(match[1]))
    return () if rest.startswith("//") or scheme in _WITHOUT_PASSWORD else (url, scheme)
