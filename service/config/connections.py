"""The section `connections`: the accounts of people at other services, which agents may use on their behalf."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from service.config.section import Section
from service.config.slack import Address  # noqa: TC001 - pydantic needs it

_KEY_BYTES = 32


class ConnectionsConfig(Section):
    """Accounts that people connect to servers of `tool-mcp`. Their tokens are stored encrypted.

    Args:
        listen: address of the requests of their browsers. Default: no server, and no one can connect an account.
        public_url: URL under which their browsers reach this address, such as https://agents.example.com.
        keys: 32 random bytes each, in base64, by names of letters and digits. The first one encrypts; the others
            decrypt older values.
    """

    listen: Address | None = None
    public_url: str = ""
    keys: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,20}$")], SecretStr] = Field(default_factory=dict)

    @field_validator("public_url")
    @classmethod
    def _is_url(cls, given: str) -> str:
        parts = urlsplit(given)
        is_here = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1")
        if given and (not parts.hostname or parts.query or parts.fragment or not (parts.scheme == "https" or is_here)):
            raise ValueError("must be an https URL without a query, such as https://agents.example.com")
        return given.rstrip("/")

    @field_validator("keys")
    @classmethod
    def _are_keys(cls, given: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, key in given.items():
            try:
                is_key = len(base64.b64decode(key.get_secret_value(), validate=True)) == _KEY_BYTES
            except (binascii.Error, ValueError):
                is_key = False
            if not is_key:
                raise ValueError(
                    f"{name}: must be {_KEY_BYTES} bytes in base64; make one with `openssl rand -base64 32`"
                )
        return given

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        given = (self.listen, self.public_url, self.keys)
        if any(given) and not all(given):
            raise ValueError("`listen`, `public_url` and `keys` are needed together")
        return self
