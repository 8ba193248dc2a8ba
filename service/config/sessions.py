"""The section `sessions`: agents in another process."""

from __future__ import annotations

import ipaddress
from importlib.util import find_spec
from pathlib import Path  # noqa: TC003 - pydantic needs it
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from service.config.config_errors import ConfigError
from service.config.section import Section
from service.config.slack import Address, address_of

if TYPE_CHECKING:
    from service.config.slack import ListenAddress

_NO_GRPC = (
    "sessions: gRPC is not installed. Install it with `pip install 'amplifier-slack[grpc]'`, or run the agents in the "
    "process of the service: remove `sessions.address`, AMPLIFIER_SLACK_SESSIONS and `--sessions`."
)
_SCHEMES = ("grpc", "grpcs")


class SessionsConfig(Section):
    """Agents in another process, which `amplifier-slack sessions serve` runs.

    Args:
        address: where the service finds it: `grpc://HOST:PORT`, or `grpcs://HOST:PORT` with TLS. Default: the agents
            run in the process of the service.
        listen: address at which `sessions serve` listens.
        certificate: PEM file with the certificate of this process, for TLS.
        key: PEM file with its private key.
        authority: PEM file with the certificates that verify the other process; `sessions serve` then requires a
            certificate of it. Default: the service trusts the system's authorities.
        unencrypted: whether `sessions serve` may listen without TLS at an address that other machines reach.
    """

    address: str | None = None
    listen: Address = "127.0.0.1:50551"
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    unencrypted: bool = False

    @field_validator("address")
    @classmethod
    def _is_url(cls, given: str | None) -> str | None:
        if given is not None:
            url = urlsplit(given)
            if url.scheme not in _SCHEMES or url.path or url.query:
                raise ValueError("must be a URL such as grpc://127.0.0.1:50551, or grpcs://HOST:PORT with TLS")
            address_of(url.netloc)
        return given

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("needs both `certificate` and `key`, or neither")
        return self

    @property
    def is_remote(self) -> bool:
        """Whether the service runs its agents in another process."""
        return self.address is not None

    @property
    def target(self) -> str:
        """Host and port of `address`."""
        return urlsplit(self.address or "").netloc

    @property
    def is_encrypted(self) -> bool:
        """Whether the service uses TLS."""
        return urlsplit(self.address or "").scheme == "grpcs"

    def at(self, folder: Path) -> Self:
        """Return the section with absolute paths; `folder` is the base of relative ones."""
        paths = {"certificate": self.certificate, "key": self.key, "authority": self.authority}
        found = {name: (folder / path.expanduser()).absolute() for name, path in paths.items() if path is not None}
        return self.model_copy(update=found)

    def with_option(self, name: str, key: str, given: str | None) -> Self:
        """Return the section with the value of an option or variable `name` for a key; `None`: it is not given.

        Raises:
            ConfigError: the value is invalid.
        """
        if given is None:
            return self
        try:
            type(self)(**{key: given})
        except ValueError as e:
            reason = str(e).partition("Value error, ")[2].partition(" [")[0]
            raise ConfigError(f"{name}: {reason}.") from e
        return self.model_copy(update={key: given})

    def listen_address(self) -> ListenAddress:
        """Return the address of `sessions serve`.

        Raises:
            ConfigError: other machines reach it, and there is no certificate.
        """
        address = address_of(self.listen)
        if self.certificate is None and not self.unencrypted and not _is_loopback(address.host):
            raise ConfigError(
                f"sessions.listen: other machines reach {self.listen}, and without TLS any program that reaches it can "
                "run the agents. Set `certificate`, `key` and `authority`, or listen on 127.0.0.1; in a network that "
                "only the service reaches, `unencrypted: true` or `--unencrypted` allows it."
            )
        return address


def require_grpc() -> None:
    """Check that gRPC is installed.

    Raises:
        ConfigError: it is not.
    """
    if not all(map(find_spec, ("grpc", "grpc_health", "grpc_reflection", "google.protobuf"))):
        raise ConfigError(_NO_GRPC)


def pem(key: str, path: Path | None) -> bytes | None:
    """Read a PEM file of a key of the section; `None`: there is none.

    Raises:
        ConfigError: it cannot be read, or is not PEM.
    """
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError as e:
        raise ConfigError(f"sessions.{key}: {path} cannot be read: {e.strerror}. Check the path.") from e
    if b"-----BEGIN " not in content:
        raise ConfigError(f"sessions.{key}: {path} is not a PEM file. It must begin with `-----BEGIN`.")
    return content


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
