"""The TLS credentials of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from service.config.sessions import pem

if TYPE_CHECKING:
    from service.config.sessions import SessionsConfig


def server_credentials(config: SessionsConfig) -> grpc.ServerCredentials | None:
    """Return the credentials of `sessions serve`; `None`: no TLS.

    Raises:
        ConfigError: a file cannot be used.
    """
    key, certificate = pem("key", config.key), pem("certificate", config.certificate)
    authority = pem("authority", config.authority)
    if key is None or certificate is None:
        return None
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority, require_client_auth=authority is not None
    )


def channel_credentials(config: SessionsConfig) -> grpc.ChannelCredentials | None:
    """Return the credentials of the service; `None`: no TLS.

    Raises:
        ConfigError: a file cannot be used.
    """
    if not config.is_encrypted:
        return None
    return grpc.ssl_channel_credentials(
        pem("authority", config.authority), pem("key", config.key), pem("certificate", config.certificate)
    )
