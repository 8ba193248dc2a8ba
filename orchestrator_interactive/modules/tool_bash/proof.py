"""Prove a sandbox by trying to leave it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator_interactive.modules.tool_bash.confined import descendants
from orchestrator_interactive.modules.tool_bash.proxy import serving_proxy
from orchestrator_interactive.modules.tool_bash.sandbox import PORT, Sandbox, choose

if TYPE_CHECKING:
    from orchestrator_interactive.modules.tool_bash import BashOptions

_WITHIN_S = 20.0
_TOKEN = "amplifier-secret-of-the-proof"  # noqa: S105 - it is none
_MARK = "31415926"
# A name that no server has (RFC 6761).
_FORBIDDEN = (
    f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; "
    r"printf 'CONNECT not-allowed.invalid:443 HTTP/1.1\r\nHost: not-allowed.invalid\r\n\r\n' >&3; head -1 <&3"
)
# Shorter values of the environment are ordinary words.
_LEAST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Proof:
    """One attempt: the duty of a sandbox, whether it holds, and the output."""

    claim: str
    holds: bool
    seen: str = ""


async def prove(options: BashOptions) -> tuple[str, list[Proof]]:
    """Try to leave the sandbox of a configuration; return its kind and the results.

    Raises:
        ValueError: no sandbox works here.
    """
    kind = await asyncio.to_thread(choose, options.sandbox, has_proxy=options.network is not None)
    reached = asyncio.Event()

    def on_connection(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    sandbox = Sandbox(kind, Path(), options.limits(), options.environment, options.read_only_paths)
    claim = "does not reach the network"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(await asyncio.start_server(on_connection, "127.0.0.1", 0))
        if options.network is not None:
            claim += " except by the proxy"
            proxy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bash-")), "proxy.sock")
            await stack.enter_async_context(serving_proxy(options.network, proxy))
            sandbox = replace(sandbox, proxy=proxy)
        found = await asyncio.to_thread(_tried, sandbox, server.sockets[0].getsockname()[1])
    return kind, [*found, Proof(claim, not reached.is_set())]


def _tried(sandbox: Sandbox, port: int) -> list[Proof]:
    with tempfile.TemporaryDirectory() as folder:
        root, secret = Path(folder).resolve() / "workspace", Path(folder).resolve() / "secret"
        root.mkdir()
        secret.write_text(_TOKEN)
        sandbox = replace(sandbox, root=root)

        def run(command: str) -> str:
            words, environment = sandbox.words(command, root)
            done = subprocess.run(  # noqa: S603 - our own words
                words,
                env={"PATH": os.environ.get("PATH", ""), **environment},
                cwd=root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_WITHIN_S,
                check=False,
            )
            return (done.stdout + done.stderr).decode(errors="replace").strip()

        wrote = run("echo kept > file && cat file")
        read = run(f"cat {secret} /proc/*/environ; env; ln -s {secret} link; cat link")
        run(f"echo x > {secret.parent}/new")
        run(f"exec 3<>/dev/tcp/127.0.0.1/{port}")
        run(f"(trap '' TERM; exec -a {_MARK} setsid sleep 300) >/dev/null 2>&1 & disown; true")
        alive = [pid for pid in descendants(1) if _MARK in _command_of(pid)]
        refused = [] if sandbox.proxy is None else [_proof_of_proxy(run(_FORBIDDEN))]
        return [
            Proof("writes in the workspace", wrote == "kept", wrote),
            Proof(
                "reads nothing outside of it, and not the environment of the service",
                not any(each in read for each in _known()),
            ),
            Proof("writes nothing outside of it", not (secret.parent / "new").exists()),
            Proof("leaves no process", not alive, ", ".join(map(str, alive))),
            *refused,
        ]


def _proof_of_proxy(answer: str) -> Proof:
    return Proof("is refused a host that is not allowed", answer.startswith("HTTP/1.1 403"), answer)


def _known() -> list[str]:
    """Return texts that a command must not be able to read."""
    values = (value for name, value in os.environ.items() if len(value) >= _LEAST_CHARS and name != "PATH")
    return [_TOKEN, *values]


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
