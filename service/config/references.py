"""References to environment variables in a configuration file: `${NAME}`, and `${NAME:-default}`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from service.config.config_errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

# `key` only as a word, or in a usual compound: api_key, sshKey and apikey, but not monkey.
_KEY = r"(?<![a-z])(api|access|private|secret)?key|(?-i:[a-z]Key)"
SECRET_OPTION = re.compile(rf"(token|secret|password|{_KEY})$", re.IGNORECASE)
# An unsupported form matches without a name. A default cannot contain a reference.
_KEYS = ("connections", "keys")
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(\w+)(?::-((?:(?!\$\{)[^}])*))?\})?", re.ASCII)


class References:
    """Expands the references in a file's values. `$${` is the text `${`.

    `taken` are variables that the service has removed from the process's environment; `remove_secrets` adds to them.
    Without `needs_agents`, variables of `instances` may be missing: nothing mounts the agents.
    """

    def __init__(self, taken: MutableMapping[str, str], *, needs_agents: bool = True) -> None:
        self._taken = taken
        self._needs_agents = needs_agents
        self._secret: set[str] = set()

    def expand(self, data: Any) -> Any:
        """Return the data with all references expanded.

        Raises:
            ConfigError: variables are not set, or a form is not supported; the message names each key.
        """
        problems: list[str] = []
        expanded = self._expand(data, (), problems)
        if problems:
            raise ConfigError(
                f"{' '.join(dict.fromkeys(problems))} Supported are ${{NAME}}, ${{NAME:-default}} for a "
                "variable that may be missing or empty, and $${ for the text ${."
            )
        return expanded

    def remove_secrets(self) -> None:
        """Remove the variables of secret options from the environment: child processes must not inherit them."""
        for name in self._secret:
            if (value := os.environ.pop(name, None)) is not None:
                self._taken[name] = value

    def _expand(self, value: Any, key: tuple[str, ...], problems: list[str]) -> Any:
        match value:
            case dict():
                return {name: self._expand(item, (*key, str(name)), problems) for name, item in value.items()}
            case list():
                return [self._expand(item, (*key, str(index)), problems) for index, item in enumerate(value)]
            case str():
                return _REFERENCE.sub(lambda found: self._value(found, key, problems), value)
        return value

    def _value(self, found: re.Match[str], key: tuple[str, ...], problems: list[str]) -> str:
        name, default = found.groups()
        if found[0] == "$${":
            return "${"
        if name is None:
            problems.append(f"{'.'.join(key)}: the text after ${{ is not a supported reference.")
            return ""
        if _is_secret(found, key):
            self._secret.add(name)
        value = self._taken.get(name) or os.environ.get(name) or default
        if value is None and not self._needs_agents and key[0] == "instances":
            return found[0]
        if value is None:
            state = "empty" if name in os.environ else "not set"
            problems.append(f"{'.'.join(key)}: the environment variable {name} is {state}.")
        return value or ""


def _is_secret(found: re.Match[str], key: tuple[str, ...]) -> bool:
    """Return whether a reference is the whole value of a secret option, or the password in a URL."""
    before, after = found.string[: found.start()], found.string[found.end() :]
    if key[-1].lower() == "authorization" and not after:  # of HTTP headers: "Bearer ${TOKEN}"
        return True
    if before or after:
        return "://" in before and before.endswith(":") and after.startswith("@")
    options = key[2:] if key[0] == "instances" else key  # without the instance's name
    return key[-1] == "store" or key[:2] == _KEYS or any(SECRET_OPTION.search(option) for option in options)
