"""How a command is confined: by bubblewrap, by Landlock, or not at all; and the proof that it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orchestrator_interactive.modules.tool_bash import confined, forward

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator_interactive.modules.tool_bash.confined import Spec

Kind = Literal["bubblewrap", "landlock", "none"]

PORT = 3128
_SOCKET = "/run/amplifier/proxy.sock"
_FORWARD = "/run/amplifier/forward.py"
_WORKSPACE = "/workspace"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TRIED_WITHIN_S = 10.0
_MB = 1024 * 1024
# What programs need of the system; nothing in it is secret.
_ETC_NAMES = (
    "alternatives ca-certificates ca-certificates.conf gitconfig group hosts ld.so.cache ld.so.conf ld.so.conf.d "
    "localtime mime.types nsswitch.conf os-release passwd pki profile protocols services ssl terminfo timezone "
)
_ROOTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_FIX = (
    "tool-bash: no sandbox works here. Install bubblewrap (Debian: `apt install bubblewrap`). In a container, allow "
    "user namespaces (Docker: a seccomp profile that allows `unshare` and `clone`; Ubuntu 24.04: `sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile for bwrap). Landlock needs Linux 6.12. "
    "`sandbox: none` runs commands without one."
)
_NO_PROXY = (
    "tool-bash: `network` with `allow` needs bubblewrap, which does not work here: {problem}. Install it, or leave "
    "`network` out."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a command: memory and files in megabytes."""

    memory_mb: int
    file_mb: int
    processes: int
    open_files: int
    cpu_s: int

    def by_name(self) -> dict[str, int]:
        """Return the values by the names of `resource.RLIMIT_…`."""
        return {
            "AS": self.memory_mb * _MB,
            "FSIZE": self.file_mb * _MB,
            "NPROC": self.processes,
            "NOFILE": self.open_files,
            "CPU": self.cpu_s,
            "CORE": 0,
        }


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A way to run commands.

    Args:
        root: the workspace folder.
        readable: further files and folders that commands may read.
        proxy: the Unix socket of the proxy; `None`: commands have no network.
    """

    kind: Kind
    root: Path
    limits: Limits
    environment: Mapping[str, str]
    readable: Sequence[Path] = ()
    proxy: Path | None = None

    def words(self, command: str, scratch: Path) -> tuple[list[str], dict[str, str]]:
        """Return the words of a process that runs a command, and its environment; `scratch` is its own folder."""
        bash = ["/bin/bash", "-c", command]
        if self.kind == "bubblewrap":
            return self._in_bubblewrap(bash), {}
        readable = ["/usr", *(f"/{name}" for name in _ROOTS), *(f"/etc/{name}" for name in _ETC_NAMES.split())]
        is_confined = self.kind == "landlock"
        spec: Spec = {
            "command": bash,
            "limits": self.limits.by_name(),
            "readable": [*readable, *map(str, self.readable)] if is_confined else None,
            "writable": [str(self.root), str(scratch), *_DEVICES],
        }
        environment = self._variables(str(self.root), str(scratch))
        return [sys.executable, "-I", "-S", confined.__file__, json.dumps(spec)], environment

    def _variables(self, home: str, temporary: str) -> dict[str, str]:
        proxy = f"http://127.0.0.1:{PORT}"
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY") if self.proxy else ()
        return {
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "HOME": home,
            "TMPDIR": temporary,
            **dict.fromkeys(names, proxy),
            **self.environment,
        }

    def _in_bubblewrap(self, bash: list[str]) -> list[str]:
        words = [
            *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
            "--as-pid-1",  # when it ends, the kernel ends everything in its namespace first
            *("--clearenv", "--cap-drop", "ALL", "--hostname", "sandbox", "--ro-bind", "/usr", "/usr"),
        ]
        for name in _ROOTS:
            path = Path("/", name)
            if path.is_symlink():
                words += ["--symlink", str(path.readlink()), str(path)]
            else:
                words += ["--ro-bind-try", str(path), str(path)]
        for name in _ETC_NAMES.split():
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        words += ["--proc", "/proc", "--dev", "/dev"]
        for folder in ("/dev/shm", "/tmp"):  # noqa: S108 - its own
            words += ["--size", str(self.limits.file_mb * _MB), "--tmpfs", folder]
        for path in self.readable:
            words += ["--ro-bind", str(path), str(path)]
        words += ["--bind", str(self.root), _WORKSPACE, "--chdir", _WORKSPACE]
        if self.proxy is not None:
            base = sysconfig.get_paths()["stdlib"]
            for needed in dict.fromkeys([str(Path(sys.executable).resolve()), base]):
                if not needed.startswith("/usr/"):
                    words += ["--ro-bind", needed, needed]
            words += ["--ro-bind", forward.__file__, _FORWARD, "--bind", str(self.proxy), _SOCKET]
            python = str(Path(sys.executable).resolve())
            bash = [python, "-I", "-S", _FORWARD, str(PORT), _SOCKET, *bash]
        # Both have no limit of size, and are memory of the host.
        words += ["--remount-ro", "/dev", "--remount-ro", "/"]
        for name, value in self._variables(_WORKSPACE, "/tmp").items():  # noqa: S108 - its own
            words += ["--setenv", name, value]
        limits = self.limits.by_name()
        set_limits = (
            f"ulimit -v {limits['AS'] // 1024} -n {limits['NOFILE']} -t {limits['CPU']} -c 0 && "
            f'ulimit -f {limits["FSIZE"] // 1024}; ulimit -u {limits["NPROC"]} 2>/dev/null; exec "$@"'
        )
        return [*words, "--", "/bin/bash", "-c", set_limits, "bash", *bash]


@cache
def problem_of(kind: Kind) -> str:
    """Return why a kind of sandbox does not work here; blank: it does."""
    if kind == "landlock":
        abi = confined.landlock_abi()
        if abi < confined.LEAST_ABI:
            return f"this kernel has version {max(abi, 0)} of Landlock, and {confined.LEAST_ABI} is needed"
    elif kind == "bubblewrap" and shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(1024, 16, 256, 256, 10)
        sandbox = Sandbox(kind, Path(folder).resolve(), limits, {})
        words, environment = sandbox.words("echo works", Path(folder).resolve())
        try:
            tried = subprocess.run(  # noqa: S603 - our own words
                words,
                env={**environment, "PATH": os.environ.get("PATH", _PATH)},
                capture_output=True,
                timeout=_TRIED_WITHIN_S,
                check=False,
                cwd=folder,
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            return str(e)
    if tried.stdout == b"works\n":
        return ""
    return " ".join(tried.stderr.decode(errors="replace").split()) or f"it ended with code {tried.returncode}"


def choose(wanted: Literal["auto"] | Kind, *, has_proxy: bool) -> Kind:
    """Return the kind of sandbox to use.

    Raises:
        ValueError: it does not work here; the message names the remedy.
    """
    if has_proxy and (problem := problem_of("bubblewrap")):
        raise ValueError(_NO_PROXY.format(problem=problem))
    if wanted == "none":
        return "none"
    kinds: tuple[Kind, ...] = ("bubblewrap", "landlock") if wanted == "auto" else (wanted,)
    for kind in kinds:
        if not problem_of(kind):
            return kind
    tried = "; ".join(f"{kind}: {problem_of(kind)}" for kind in kinds)
    raise ValueError(f"{_FIX} Tried: {tried}.")
