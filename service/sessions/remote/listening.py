"""Serve `SessionService`, with health and reflection."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from service.config.config_errors import ConfigError
from service.sessions.remote.credentials import server_credentials
from service.sessions.remote.server import SessionServer
from service.sessions.remote.sessions_pb2 import DESCRIPTOR
from service.sessions.remote.sessions_pb2_grpc import add_SessionServiceServicer_to_server
from service.sessions.remote.wire import OPTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.config.sessions import SessionsConfig
    from service.sessions.manager import InProcessSessionManager
    from service.sessions.remote.server import RemoteHost

log = structlog.get_logger(__name__)

_NAME = DESCRIPTOR.services_by_name["SessionService"].full_name
# For the last events of runs, after they have ended.
_CLOSED_WITHIN_S = 0.5


@asynccontextmanager
async def listening(
    config: SessionsConfig, sessions: InProcessSessionManager, host: RemoteHost, grace_s: float
) -> AsyncIterator[int]:
    """Serve sessions while the context is open; yields the port. On exit, active runs are suspended within `grace_s`.

    Raises:
        ConfigError: the address or a certificate cannot be used.
    """
    address = config.listen_address()
    credentials = server_credentials(config)
    # With SO_REUSEPORT, a second process would take a share of the connections.
    server = grpc.aio.server(options=(*OPTIONS, ("grpc.so_reuseport", 0)))
    servicer, health_servicer = SessionServer(sessions, host), health.aio.HealthServicer()
    add_SessionServiceServicer_to_server(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        if credentials is None:
            port = server.add_insecure_port(config.listen)
        else:
            port = server.add_secure_port(config.listen, credentials)
    except RuntimeError as e:
        raise ConfigError(
            f"sessions.listen: cannot listen on {address.host} port {address.port}. Is it an address of this machine, "
            "and does no other program use it?"
        ) from e
    await server.start()
    try:
        for name in ("", _NAME):
            await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info("sessions.listening", host=address.host, port=port, tls=credentials is not None)
        yield port
    finally:
        await health_servicer.enter_graceful_shutdown()
        await servicer.leave(grace_s)
        await server.stop(_CLOSED_WITHIN_S)
