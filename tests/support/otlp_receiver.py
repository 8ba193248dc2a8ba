"""A collector of OpenTelemetry traces over HTTP."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Span:
    """A received span with its attributes in Python's types."""

    name: str
    trace_id: str
    id: str
    parent: str
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    is_error: bool


@dataclass
class OtlpReceiver:
    """Collects spans; `bodies` are the requests as they arrived, unpacked."""

    spans: list[Span] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    port: int = 0
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/traces", self._receive)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def env(self) -> dict[str, str]:
        """The variables with which a service exports to here soon after the end of a span."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}", "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def named(self, start: str) -> list[Span]:
        return [span for span in self.spans if span.name.startswith(start)]

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.bodies.append(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        parsed = ExportTraceServiceRequest.FromString(self.bodies[-1])
        for resource in parsed.resource_spans:
            for scope in resource.scope_spans:
                self.spans += [_span(each) for each in scope.spans]
        return web.Response(content_type="application/x-protobuf")


def _span(raw: Any) -> Span:
    attributes = {each.key: _value(each.value) for each in raw.attributes}
    links = [(link.trace_id.hex(), link.span_id.hex()) for link in raw.links]
    ids = raw.trace_id.hex(), raw.span_id.hex(), raw.parent_span_id.hex()
    return Span(raw.name, *ids, attributes, links, raw.status.code == 2)


def _value(raw: Any) -> Any:
    value = getattr(raw, raw.WhichOneof("value"))
    return [_value(each) for each in value.values] if hasattr(value, "values") else value
