"""An MCP server over HTTP whose tool `whoami` needs an account, with its authorization server, on loopback."""

from __future__ import annotations

import base64
import secrets
import ssl
from hashlib import sha256
from typing import Any, Self
from urllib.parse import urlencode

from aiohttp import web

TOOLS = [{"name": "whoami", "description": "Names the account.", "inputSchema": {"type": "object", "properties": {}}}]


class OAuthServer:
    """`account`: who logs in next; blank: they refuse. `tokens`: the account of each valid token. `calls`: who called.
    `tools`: its tools. `hosts`: those that
    requests named. `issuer`: the authorization server that it names; blank: itself.

    Args:
        lifetime_s: of access tokens.
        **overrides: of the metadata of the authorization server.
    """

    def __init__(self, lifetime_s: int = 3600, **overrides: Any) -> None:
        self.account = "ada@example.test"
        self.tokens: dict[str, str] = {}
        self.calls: list[str] = []
        self.tools = TOOLS
        self.logins = self.renewals = 0
        self.resource = self.issuer = ""
        self.hosts: set[str] = set()
        self._refresh: dict[str, str] = {}
        self._codes: dict[str, tuple[str, str, str]] = {}
        self._lifetime_s = lifetime_s
        self.overrides = overrides

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._noted])
        app.router.add_get("/.well-known/oauth-protected-resource/mcp", self._on_resource)
        app.router.add_get("/.well-known/oauth-authorization-server", self._on_metadata)
        app.router.add_post("/register", self._on_register)
        app.router.add_get("/authorize", self._on_authorize)
        app.router.add_post("/token", self._on_token)
        app.router.add_post("/mcp", self._on_mcp)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _noted(self, request: web.Request, handler: Any) -> Any:
        self.hosts.add(request.host)
        return await handler(request)

    async def listen(self, tls: ssl.SSLContext) -> int:
        """Serve over TLS, too; return the port."""
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        return int(self._runner.addresses[-1][1])

    async def _on_resource(self, _request: web.Request) -> web.Response:
        resource = self.resource or f"{self.base}/mcp"
        return web.json_response({"resource": resource, "authorization_servers": [self.issuer or self.base]})

    async def _on_metadata(self, _request: web.Request) -> web.Response:
        found = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return web.json_response({**found, **self.overrides})

    async def _on_register(self, request: web.Request) -> web.Response:
        return web.json_response({**await request.json(), "client_id": "client-1"}, status=201)

    async def _on_authorize(self, request: web.Request) -> web.Response:
        query = request.query
        assert query["resource"] == f"{self.base}/mcp"
        back = {"state": query["state"], "iss": self.base}
        if self.account:
            code = back["code"] = secrets.token_urlsafe()
            self._codes[code] = (self.account, query["code_challenge"], query["redirect_uri"])
        else:
            back["error"] = "access_denied"
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(back)}")

    async def _on_token(self, request: web.Request) -> web.Response:
        form = await request.post()
        if form["grant_type"] == "refresh_token":
            account = self._refresh.pop(str(form["refresh_token"]), "")
            self.renewals += bool(account)
        else:
            account, challenge, redirect = self._codes.pop(str(form["code"]), ("", "", ""))
            digest = sha256(str(form["code_verifier"]).encode()).digest()
            proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            account = account if (proof, form["redirect_uri"]) == (challenge, redirect) else ""
            self.logins += bool(account)
        if not account:
            return web.json_response({"error": "invalid_grant"}, status=400)
        token, renewal = secrets.token_urlsafe(), secrets.token_urlsafe()
        self.tokens[token], self._refresh[renewal] = account, account
        found = {"access_token": token, "token_type": "Bearer", "expires_in": self._lifetime_s}
        return web.json_response({**found, "refresh_token": renewal})

    async def _on_mcp(self, request: web.Request) -> web.Response:
        account = self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if account is None:
            where = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            return web.Response(status=401, headers={"WWW-Authenticate": where})
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "initialize":
                info = {"name": "accounts", "version": "1"}
                answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                answer["result"] = {"tools": self.tools}
            case "tools/call":
                self.calls.append(account)
                answer["result"] = {"content": [{"type": "text", "text": f"You are {account}"}]}
            case _:
                answer["error"] = {"code": -32601, "message": "Method not found"}
        return web.json_response(answer)
