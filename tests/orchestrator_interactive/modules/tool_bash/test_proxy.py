"""The network of commands: only allowed hosts, and credentials that no command sees."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sandboxes import require

from orchestrator_interactive.modules.tool_bash.proxy import NetworkOptions, serving_proxy

TOKEN = "token-of-the-service"


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost; return its file and that of the key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return paths


class Site:
    """A server at localhost that records its requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.path_qs, dict(request.headers), await request.read()))
        return web.Response(text=f"hello from {request.path}")

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site().listening() as site:
        yield site


def network(site: Site, **more: Any) -> dict[str, Any]:
    return {"allow": ["localhost"], "allow_private": True, "ports": {"localhost": site.port}, **more}


def curl(url: str, *options: str) -> str:
    return f"curl -s --max-time 10 {' '.join(options)} {url}"


@pytest.fixture
def kind() -> str:
    require("bubblewrap")
    return "bubblewrap"


async def test_an_allowed_host_is_reached_through_the_proxy(run: Any, site: Site) -> None:
    program = "import urllib.request as u; print(u.urlopen('http://localhost/a?b=1').read().decode())"
    assert "hello from /a" in await run(f'python3 -c "{program}"', network=network(site))
    assert site.requests[0][0] == "/a?b=1"


async def test_credentials_are_added_on_the_way_and_no_command_sees_them(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    async with Site().listening(tls) as site:
        options = network(site, credentials={"localhost": {"Authorization": f"Bearer {TOKEN}"}})
        program = (
            "import urllib.request as u;"
            "r = u.Request('http://localhost/x', data=b'body', headers={'Authorization': 'mine', 'X-Own': '1'});"
            "print(u.urlopen(r).read().decode())"
        )
        looking = "env; set; cat /proc/*/environ /proc/*/cmdline; cat /run/amplifier/* 2>&1"
        found = await run(f'python3 -c "{program}"; {looking}', network=options)
        assert "hello from /x" in found
        assert TOKEN not in found
        path, headers, body = site.requests[0]
        assert (path, body, headers["Authorization"], headers["X-Own"]) == ("/x", b"body", f"Bearer {TOKEN}", "1")
        connecting = "import urllib.request as u; u.urlopen('https://localhost/x')"
        assert "403" in await run(f'python3 -c "{connecting}"', network=options)
        assert len(site.requests) == 1


async def asked(options: dict[str, Any], folder: Path, request: bytes, *, ends: bool = True) -> bytes:
    """Send bytes to a proxy, and return its answer; `ends`: nothing more follows."""
    path = folder / "p.sock"
    async with serving_proxy(NetworkOptions(**options), path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(request)
        if ends:
            writer.write_eof()
        async with asyncio.timeout(15):
            answer = await reader.read()
        writer.close()
    return answer


HOSTILE = {
    "another host": b"GET http://example.com/ HTTP/1.1\r\n\r\n",
    "another host by CONNECT": b"CONNECT example.com:443 HTTP/1.1\r\n\r\n",
    "an address": b"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n",
    "an address in IPv6": b"GET http://[::1]/ HTTP/1.1\r\n\r\n",
    "a decimal address": b"GET http://2130706433/ HTTP/1.1\r\n\r\n",
    "metadata": b"GET http://169.254.169.254/ HTTP/1.1\r\n\r\n",
    "a subdomain": b"GET http://evil.localhost/ HTTP/1.1\r\n\r\n",
    "a suffix": b"GET http://localhost.evil.example/ HTTP/1.1\r\n\r\n",
    "a user name": b"GET http://localhost@evil.example/ HTTP/1.1\r\n\r\n",
    "credentials in the address": b"GET http://user:pass@localhost/ HTTP/1.1\r\n\r\n",
    "another port": b"GET http://localhost:22/ HTTP/1.1\r\n\r\n",
    "another port by CONNECT": b"CONNECT localhost:22 HTTP/1.1\r\n\r\n",
    "no port": b"CONNECT localhost HTTP/1.1\r\n\r\n",
    "https": b"GET https://localhost/ HTTP/1.1\r\n\r\n",
    "a file": b"GET file:///etc/passwd HTTP/1.1\r\n\r\n",
    "a path": b"GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another host in the header": b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no method": b" http://localhost/ HTTP/1.1\r\n\r\n",
    "a method that is no word": b"GE(T http://localhost/ HTTP/1.1\r\n\r\n",
    "too many words": b"GET http://localhost/ HTTP/1.1 x\r\n\r\n",
    "a wrong version": b"GET http://localhost/ HTTP/3\r\n\r\n",
    "a line break in the target": b"GET http://localhost/\nX: 1 HTTP/1.1\r\n\r\n",
    "a line break in a header": b"GET http://localhost/ HTTP/1.1\r\nX: a\nY: b\r\n\r\n",
    "a folded header": b"GET http://localhost/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
    "a header without a name": b"GET http://localhost/ HTTP/1.1\r\n: a\r\n\r\n",
    "a header without a colon": b"GET http://localhost/ HTTP/1.1\r\nX\r\n\r\n",
    "letters that are no ASCII": "GET http://lôcalhost/ HTTP/1.1\r\n\r\n".encode(),
    "a null": b"GET http://localhost\0/ HTTP/1.1\r\n\r\n",
    "nothing": b"",
    "no end": b"GET http://localhost/ HTTP/1.1\r\n",
    "a long head": b"GET http://localhost/ HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "another language": b"\x16\x03\x01\x02\x00\x01\x00",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_request_reaches_no_server(site: Site, tmp_path: Path, name: str) -> None:
    answer = await asked(network(site), tmp_path, HOSTILE[name])
    assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502"))
    assert site.requests == []


async def test_an_allowed_name_with_a_private_address_is_refused(site: Site, tmp_path: Path) -> None:
    options = {**network(site), "allow_private": False}
    answer = await asked(options, tmp_path, b"GET http://localhost/ HTTP/1.1\r\n\r\n")
    assert b"localhost has an address that is loopback, which is not allowed." in answer
    assert site.requests == []


async def test_metadata_services_are_refused_also_where_private_addresses_are_allowed(tmp_path: Path) -> None:
    options = {"allow": ["169.254.169.254"], "allow_private": True}
    answer = await asked(options, tmp_path, b"GET http://169.254.169.254/ HTTP/1.1\r\n\r\n")
    assert b"an address that is link-local or a metadata service" in answer


async def test_headers_of_the_connection_are_not_passed_on(site: Site, tmp_path: Path) -> None:
    request = (
        b"GET http://localhost/ok HTTP/1.1\r\nHost: evil\r\nProxy-Authorization: x\r\nConnection: X-A\r\nX-A: 1\r\n\r\n"
    )
    assert b"hello from /ok" in await asked(network(site), tmp_path, request, ends=False)
    headers = site.requests[0][1]
    assert headers["Host"] == "localhost"
    assert "Proxy-Authorization" not in headers


async def test_without_a_network_there_is_no_proxy(run: Any) -> None:
    assert "none" in await run("echo ${http_proxy:-none}")
