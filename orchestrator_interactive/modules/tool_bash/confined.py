"""Run a command in a session of its own, confined by Landlock and seccomp if asked, and end all that it has started.

`argv[1]` is a `Spec` as JSON. The program is the subreaper of everything below it: after the command has ended, or on
SIGTERM, or when its parent has died, it ends every process that is left, those that have left the session included. It
imports only the standard library, to start quickly.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys
import time
from typing import Any, TypedDict

GRACE_S = 0.5
LEAST_ABI = 6  # with scopes for signals and abstract sockets: Linux 6.12

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 38, 22, 24, 36
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_PATH_BENEATH, _VERSION = 1, 1
_ALL, _FILES = (1 << 16) - 1, 0b1100_0000_0000_0111
_READ = 0b1101  # execute, read files, read folders
_NO_DEVICES = ~(1 << 6 | 1 << 11)
_NET, _SCOPES = 0b11, 0b11
_LAST_CAP = 63
# Calls that are refused, since Landlock does not cover them: sockets and rings that make sockets, access to other
# processes or the kernel, and changes of modes, owners, times and attributes by path. By architecture: its number for
# seccomp, the numbers of the calls, of `utimensat`, refused with a path, and of `fchmod`, refused to root.
_REFUSED = {
    "x86_64": (
        0xC000003E,
        (
            "41 425 101 321 323 248 249 250 298 438 310 311 "
            "90 92 93 94 132 235 261 260 268 452 188 189 190 197 198 199 463 466 469"
        ),
        280,
        91,
    ),
    "aarch64": (
        0xC00000B7,
        "198 425 117 280 282 217 218 219 241 438 270 271 53 54 55 452 5 6 7 14 15 16 463 466 469",
        88,
        52,
    ),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_X32 = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


class Spec(TypedDict):
    """A command: its words, its limits by the name of `resource.RLIMIT_…`, and the paths it may read and write.

    If `readable` is None, it is not confined.
    """

    command: list[str]
    limits: dict[str, int]
    readable: list[str] | None
    writable: list[str]


def landlock_abi() -> int:
    """Return the version of Landlock in this kernel; 0 or less: it has none."""
    return int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION))


def descendants(pid: int) -> list[int]:
    """Return the processes below a process that are not zombies, children before their own children."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib starts slowly
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - pathlib starts slowly
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    parents.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_descendants(grace_s: float) -> None:
    """End all processes below this one, a subreaper: first by SIGTERM, and after the grace by SIGKILL."""
    deadline = time.monotonic() + grace_s
    while _has_children():
        send(descendants(os.getpid()), signal.SIGKILL if time.monotonic() >= deadline else signal.SIGTERM)
        time.sleep(0.005)


def _has_children() -> bool:
    """Reap ended processes; return whether any process is left. A list of processes may miss one that is moving."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _restrict(spec: Spec, readable: list[str]) -> None:
    """Let this process use only some paths, no sockets, and no capabilities."""
    for capability in range(_LAST_CAP + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _checked(_libc.capset(header, none))
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    attributes = struct.pack("=QQQ", _ALL, _NET, _SCOPES)
    rules = _checked(_libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    for paths, access in ((readable, _READ), (spec["writable"], _ALL & _NO_DEVICES)):
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                is_folder = os.path.isdir(path)  # noqa: PTH112
                rule = struct.pack("=Qi", access if is_folder else access & _FILES, place)
                _checked(_libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0))
                os.close(place)
    _checked(_libc.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)
    _refuse_calls()


def _refuse_calls() -> None:
    architecture, names, with_path, of_root = _REFUSED[platform.machine()]
    numbers = [*map(int, names.split()), *([of_root] if os.getuid() == 0 else [])]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE)]
    for number in numbers:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    # The path is the second argument: both halves of the pointer must be 0.
    program += [(_EQUAL, 0, 4, with_path)]  # another call: allowed
    program += [(_LOAD, 0, 0, 24), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, 28), (_EQUAL, 0, 1, 0)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    whole = struct.pack("@HP", len(program), ctypes.addressof(filters))
    _checked(_libc.prctl(_PR_SET_SECCOMP, 2, whole, 0, 0))


def _begin(spec: Spec) -> None:
    """Become the command."""
    try:
        for name, value in spec["limits"].items():
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        if spec["readable"] is not None:
            _restrict(spec, spec["readable"])
        os.execv(spec["command"][0], spec["command"])  # noqa: S606 - the words of the caller
    except BaseException as e:  # noqa: BLE001 - nothing may run unconfined
        os.write(2, f"The sandbox cannot be set up: {e}\n".encode())
    os._exit(126)


def main() -> None:
    spec: Any = json.loads(sys.argv[1])
    parent = os.getppid()
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))

    def end(number: int, _frame: object) -> None:
        end_descendants(GRACE_S)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        _begin(spec)
    status = 0
    while True:
        ended, found = os.waitpid(-1, 0)
        if ended == child:
            status = found
            break
    end_descendants(0)
    os._exit(os.waitstatus_to_exitcode(status) % 256 if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


if __name__ == "__main__":
    main()
