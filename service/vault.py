"""Encrypt values at rest: AES-256-GCM, with the id of the key in front, so that keys can be replaced."""

from __future__ import annotations

import base64
import binascii
import json
import os
from typing import TYPE_CHECKING, Any

from service.config.config_errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import SecretStr

_NONCE_BYTES = 12


class Sealed(Exception):  # noqa: N818 - a state
    """A value cannot be decrypted: its key is missing, or it was changed or moved."""


class Vault:
    """Encrypts with the first key, and decrypts with any.

    Args:
        keys: keys in base64, 32 bytes each, by their ids.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        # Imported here: only services with accounts need the library.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._ciphers = {name: AESGCM(base64.b64decode(key)) for name, key in keys.items()}

    def seal(self, value: Any, place: str) -> str:
        """Return a JSON value encrypted; it can be decrypted only under the same `place`."""
        name, cipher = next(iter(self._ciphers.items()))
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + cipher.encrypt(nonce, json.dumps(value).encode(), place.encode())
        return f"{name}.{base64.b64encode(sealed).decode()}"

    def is_current(self, text: str) -> bool:
        """Return whether a value is encrypted with the first key."""
        return text.partition(".")[0] == next(iter(self._ciphers))

    def open(self, text: str, place: str) -> Any:
        """Return an encrypted value.

        Raises:
            Sealed: it cannot be decrypted.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        name, _, encoded = text.partition(".")
        try:
            sealed = base64.b64decode(encoded, validate=True)
            opened = self._ciphers[name].decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place.encode())
            return json.loads(opened)
        except (KeyError, InvalidTag, binascii.Error, ValueError) as e:
            raise Sealed(f"It cannot be decrypted with the key {name[:20]!r}.") from e


def vault_of(keys: Mapping[str, SecretStr]) -> Vault | None:
    """Return the encryption with the keys of the section `connections`; `None` without keys.

    Raises:
        ConfigError: the library is not installed.
    """
    if not keys:
        return None
    try:
        return Vault({name: key.get_secret_value() for name, key in keys.items()})
    except ImportError as e:
        raise ConfigError(
            "connections: cryptography is not installed. Install it with `pip install 'amplifier-slack[mcp]'`."
        ) from e
