"""Attempts to leave the sandbox, by bubblewrap and by Landlock: none succeeds."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sandboxes import require

from orchestrator_interactive.modules.tool_bash import BashOptions, prove

PYTHON = "/usr/bin/python3 -c"
READS = {
    "a file next to the workspace": "cat {outside}",
    "a relative path": "cat ../outside.txt",
    "a symbolic link": "ln -s {outside} link && cat link",
    "a hard link": "ln {outside} link && cat link",
    "a link to a folder": "ln -s {parent} up && cat up/outside.txt",
    "the root of another process": "cat /proc/1/root{outside}",
    "the folder of the parent": "cat /proc/$PPID/cwd/../outside.txt",
    "an open file of the parent": "cat /proc/$PPID/fd/* < /dev/null",
    "the environment of the parent": "cat /proc/$PPID/environ",
    "all environments": "cat /proc/[0-9]*/environ",
    "all memory": "cat /proc/[0-9]*/mem",
    "its own environment": "env; set; export -p",
    "passwords": "cat /etc/shadow /etc/gshadow",
    "the home folder": "ls -a /root /home; cat /root/.* /home/*/.*",
    "keys": "cat /etc/ssh/* /root/.ssh/*",
    "the memory of the kernel": "cat /proc/kcore /dev/mem /dev/kmem | head -c 100",
    "a disk": "head -c 100 /dev/vda /dev/sda /dev/nvme0n1",
    "a new device": "mknod disk b 254 0 && head -c 10 disk",
    "the old root": "ls /oldroot /newroot /.old",
    "a new user namespace": "unshare -Ur cat {outside}",
    "a mount": "mkdir m && mount --bind {parent} m && cat m/outside.txt",
    "a mount in a namespace": "unshare -Urm sh -c 'mkdir -p m; mount --bind {parent} m; cat m/outside.txt'",
    "another root": "mkdir c && chroot {parent} /bin/cat /outside.txt",
    "a handle": PYTHON + ' "import os; os.open_by_handle_at" ; find / -name outside.txt -exec cat {{}} +',
    "a debugger": PYTHON + ' "import ctypes,os; print(ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))"',
    "a descriptor": PYTHON + ' "import os; [print(os.read(fd, 99)) for fd in range(3, 64)]"',
}
WRITES = {
    "a file next to the workspace": "echo x > {parent}/new",
    "a link": "ln -s {parent} up; echo x > up/new",
    "an existing file": "echo x >> {outside}",
    "a removal": "rm -f {outside}",
    "a mode": "chmod 777 {outside}",
    "a time": "touch {outside}",
    "a rename": "echo x > y; mv y {parent}/new",
    "the system": "echo x > /usr/amplifier-new; echo x > /etc/amplifier-new; echo x > /bin/amplifier-new",
    "the kernel": "echo x > /proc/sys/kernel/hostname",
    "a setting of memory": "echo 1 > /proc/sys/vm/drop_caches",
    "a user": "useradd amplifier; echo x >> /etc/passwd",
    "the parent": "echo x > /proc/$PPID/comm",
    "a schedule": "echo '* * * * * root id' > /etc/cron.d/amplifier; crontab -l",
    "the shared memory": "for d in /dev/shm /var/tmp /run; do echo x > $d/amplifier-new; done",
}
REACHES = {
    "a port of the host": "exec 3<>/dev/tcp/127.0.0.1/{port}",
    "by its name": "exec 3<>/dev/tcp/localhost/{port}",
    "by IPv6": "exec 3<>/dev/tcp/::1/{port}",
    "any address": "exec 3<>/dev/tcp/0.0.0.0/{port}",
    "a datagram": "echo x > /dev/udp/127.0.0.1/{port}",
    "python": PYTHON + " \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\"",
    "a raw socket": PYTHON + ' "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"',
    "a packet socket": PYTHON + " \"import socket; socket.socket(17, socket.SOCK_RAW).bind(('lo', 0))\"",
    "a socket of the host": PYTHON + " \"import socket; socket.socket(socket.AF_UNIX).connect('{parent}/host.sock')\"",
    "an abstract socket": PYTHON + " \"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{abstract}')\"",
    "a new network": "unshare -n true; ip link set lo up; exec 3<>/dev/tcp/127.0.0.1/{port}",
    "another namespace": "nsenter -t 1 -n sh -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'",
    "a name": "getent hosts example.com && exec 3<>/dev/tcp/example.com/80",
}


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AMPLIFIER_TOKEN", "xoxb-of-the-service")
    return "xoxb-of-the-service"


@pytest.mark.parametrize("name", READS)
async def test_nothing_outside_of_the_workspace_is_read(run: Any, outside: Path, secret: str, name: str) -> None:
    found = await run(READS[name].format(outside=outside, parent=outside.parent))
    assert "of-others" not in found
    assert secret not in found
    assert "root:$" not in found


def state(outside: Path) -> list[object]:
    """Return what no command may change."""
    found, folders = outside.stat(), ("/usr", "/etc", "/bin", "/etc/cron.d", "/dev/shm", "/var/tmp", "/run")  # noqa: S108
    new = [path for folder in folders for path in Path(folder).glob("amplifier*") if path.is_file()]
    host = Path("/proc/sys/kernel/hostname").read_text()
    return [found.st_mtime_ns, found.st_mode, outside.read_text(), (outside.parent / "new").exists(), new, host]


@pytest.mark.parametrize("name", WRITES)
async def test_nothing_outside_of_the_workspace_is_written(run: Any, outside: Path, name: str) -> None:
    before = state(outside)
    await run(WRITES[name].format(outside=outside, parent=outside.parent))
    assert state(outside) == before


@pytest.mark.parametrize("name", REACHES)
async def test_no_network_and_no_socket_is_reached(run: Any, outside: Path, name: str) -> None:
    reached = asyncio.Event()

    def on_connection(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    abstract = f"amplifier-{os.getpid()}"
    tcp = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    port = tcp.sockets[0].getsockname()[1]
    six = await asyncio.start_server(on_connection, "::1", port) if socket.has_dualstack_ipv6() else tcp
    unix = await asyncio.start_unix_server(on_connection, outside.parent / "host.sock")
    hidden = await asyncio.start_unix_server(on_connection, "\0" + abstract)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", port))
        datagrams.setblocking(False)
        found = await run(REACHES[name].format(port=port, parent=outside.parent, abstract=abstract))
        with pytest.raises(BlockingIOError):
            datagrams.recv(10)
    for server in (tcp, six, unix, hidden):
        server.close()
    assert not reached.is_set(), found


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("echo kept > a && cat a", "kept"),
        ("mkdir -p x/y && cd x/y && pwd && ls /usr/bin | head -1", "x/y"),
        ("printf 'one\\ntwo\\n' | grep two", "two"),
        ("mktemp", "tmp"),
        ("python3 -c 'print(6 * 7)'", "42"),
        ("(sleep 0.1; echo later) & wait", "later"),
        ('[ -z "$SLACK_BOT_TOKEN$AMPLIFIER_TOKEN" ] && echo no-token', "no-token"),
    ],
)
async def test_ordinary_work_is_possible(run: Any, secret: str, command: str, seen: str) -> None:
    found = await run(command)
    assert found.startswith("exit code 0")
    assert seen in found
    assert secret not in found


async def test_further_paths_are_readable_and_not_writable(run: Any, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "a.txt").write_text("shared-text")
    found = await run(f"cat {shared}/a.txt; echo x > {shared}/b.txt", read_only_paths=[str(shared)])
    assert "shared-text" in found
    assert not (shared / "b.txt").exists()


async def test_commands_cannot_fill_the_memory_of_the_host(run: Any, kind: str) -> None:
    if kind != "bubblewrap":
        pytest.skip("only bubblewrap has file systems in memory")
    fill = "for n in 1 2 3; do head -c 1000000 /dev/zero > $d/$n; done"
    found = await run(f"for d in /dev/shm /tmp; do {fill}; done; echo x > /full; echo x > /dev/full-too", file_mb=2)
    assert found.count("No space left on device") == 2
    assert "/full: Read-only file system" in found
    assert "/dev/full-too: Read-only file system" in found


async def test_the_proof_holds(kind: str) -> None:
    found, proofs = await prove(BashOptions(sandbox=kind))
    assert found == kind
    assert [proof.claim for proof in proofs if not proof.holds] == []


async def test_the_proof_tries_the_proxy() -> None:
    require("bubblewrap")
    _, proofs = await prove(BashOptions.model_validate({"network": {"allow": ["docs.example.org"]}}))
    assert [proof for proof in proofs if not proof.holds] == []
    assert "is refused a host that is not allowed" in [proof.claim for proof in proofs]


async def test_the_proof_fails_if_the_proxy_lets_the_command_through() -> None:
    require("bubblewrap")
    _, proofs = await prove(BashOptions.model_validate({"network": {"allow": ["*.invalid"]}}))
    assert [proof.claim for proof in proofs if not proof.holds] == ["is refused a host that is not allowed"]


async def test_the_proof_fails_with_a_readable_path_that_has_secrets(kind: str) -> None:
    options = {"sandbox": kind, "read_only_paths": [tempfile.gettempdir()]}
    _, proofs = await prove(BashOptions.model_validate(options))
    failed = [proof.claim for proof in proofs if not proof.holds]
    assert failed == ["reads nothing outside of it, and not the environment of the service"]


async def test_the_proof_fails_without_a_sandbox() -> None:
    _, proofs = await prove(BashOptions(sandbox="none"))
    assert sum(not proof.holds for proof in proofs) >= 3
