"""References to environment variables in a configuration file: `${NAME}`, and `${NAME:-default}`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from service.config.config_errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_OPTION = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)
_REFERENCE = re.compile(r"\$(\$?)\{(\w+)(?::-([^}]*))?\}", re.ASCII)


class References:
    """Expands the references in a file's values. `$${NAME}` is the text `${NAME}`.

    `taken` are variables that the service has removed from the process's environment.
    """

    def __init__(self, taken: Mapping[str, str]) -> None:
        self._taken = taken
        self._secret: set[str] = set()

    def expand(self, data: Any) -> Any:
        """Return the data with all references expanded.

        Raises:
            ConfigError: variables are not set; the message names each with its key.
        """
        missing: list[str] = []
        expanded = self._expand(data, (), missing)
        if missing:
            raise ConfigError(
                f"{' '.join(missing)} Set it, or write ${{NAME:-default}}; $${{NAME}} is the text itself."
            )
        return expanded

    def remove_secrets(self) -> None:
        """Remove the variables of secret options from the environment: child processes must not inherit them."""
        for name in self._secret:
            os.environ.pop(name, None)

    def _expand(self, value: Any, key: tuple[str, ...], missing: list[str]) -> Any:
        match value:
            case dict():
                return {name: self._expand(item, (*key, str(name)), missing) for name, item in value.items()}
            case list():
                return [self._expand(item, (*key, str(index)), missing) for index, item in enumerate(value)]
            case str():
                return _REFERENCE.sub(lambda found: self._value(found, key, missing), value)
        return value

    def _value(self, found: re.Match[str], key: tuple[str, ...], missing: list[str]) -> str:
        escaped, name, default = found.groups()
        if escaped:
            return found[0][1:]
        if key[-1] == "store" or any(SECRET_OPTION.search(part) for part in key):
            self._secret.add(name)
        value = self._taken.get(name) or os.environ.get(name) or default
        if value is None:
            missing.append(f"{'.'.join(key)}: the environment variable {name} is not set.")
        return value or ""
