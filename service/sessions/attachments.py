"""Store the files of messages in the workspace of their conversation, and read them for the model."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO
from unicodedata import category, normalize

from connector.protocols import MessageFile
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.modules.tool_filesystem.quota import DRAFT, MB, Limits, NoRoom, Quota
from orchestrator_interactive.modules.tool_filesystem.search_process import FILE
from orchestrator_interactive.modules.tool_filesystem.workspace import open_folder
from service.sessions import attachment_process

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TOP = "files"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TIME_LIMIT_S = 20
_CHILDREN = threading.BoundedSemaphore(2)
# Held while a file appears or goes.
_MOVING = threading.Lock()
_MAX_NAME_BYTES = 120
_MAX_TYPE_CHARS = 80
_HEAD_BYTES = 4_096
_MAX_TEXT_CHARS = 8_000
_MAX_DOCUMENT_CHARS = 16_000
_MAX_READ_BYTES = 4_000_000
_MAX_IMAGE_BYTES = 1_000_000
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"\x7fELF", "application/x-executable"),
    (b"MZ", "application/x-executable"),
)
_MAY_BE_HTML = ("text/html", "text/plain", "application/xhtml+xml")
_TARS = ("application/x-tar", "application/gzip", "application/x-bzip2", "application/x-xz")
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
# It never backtracks: a text of many comments would take exponential time.
_HTML = re.compile(rb"\s*+(?:<!--(?>.*?-->)\s*+)*+<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)


async def keep(  # noqa: PLR0913 - the parts of a file
    folder: Path,
    file_id: str,
    name: str,
    data: bytes | Path,
    *,
    declared: str = "",
    limits: Mapping[str, int] | None = None,
) -> MessageFile:
    """Store a file and read it. A file of this id that is already there is not changed. Raises no OSError.

    A call that is cancelled stores nothing after a later `drop`.
    """
    cancelled = threading.Event()
    try:
        store = _Store(folder, file_id, limits or {}, cancelled)
        return await asyncio.to_thread(_keep, store, name, data, declared)
    except asyncio.CancelledError:
        cancelled.set()
        raise


def image_block(folder: Path, file: MessageFile) -> dict[str, Any] | None:
    """Return the image for the model; `None`: there is none, or it was changed into something else."""
    if not file.image:
        return None
    *folders, name = file.image_path.split("/")
    try:
        with open_folder(folder, folders) as place, os.fdopen(os.open(name, FILE, dir_fd=place), "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > _MAX_IMAGE_BYTES:
                return None
            data = opened.read(_MAX_IMAGE_BYTES)
    except OSError:
        return None
    if _type(data[:_HEAD_BYTES]) != file.image:
        return None
    source = {"type": "base64", "media_type": file.image, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


def place_of(file_id: str) -> str:
    """Return the path of the folder of a file in the workspace, with a slash, as the notes of the file have it."""
    return f"{_TOP}/{_folder_of(file_id)}/"


async def drop(folder: Path, file_id: str) -> None:
    """Remove a stored file and its copies, unless the agent has put something else there."""
    await asyncio.to_thread(_drop, folder, file_id)


def _drop(folder: Path, file_id: str) -> None:
    with _MOVING, suppress(OSError), open_folder(folder, [_TOP]) as top:
        name = _folder_of(file_id)
        with open_folder(folder, [_TOP, name]) as place:
            for each in os.listdir(place):  # noqa: PTH208 - of a descriptor
                os.unlink(each, dir_fd=place)
        os.rmdir(name, dir_fd=top)


def _keep(store: _Store, name: str, data: bytes | Path, declared: str) -> MessageFile:
    try:
        with tempfile.TemporaryFile() if isinstance(data, bytes) else data.open("rb") as file:
            if isinstance(data, bytes):
                file.write(data)
                file.flush()
            return _kept(store, name, file, declared.partition(";")[0].strip().lower())
    except NoRoom as e:
        return _refused(
            name, f"there is no room for it ({str(e).rstrip('.')}). Ask for files to be deleted, and send it again."
        )
    except OSError as e:
        why = e.strerror or type(e).__name__
        return _refused(name, f"it cannot be stored ({why}). Send it again, or ask the operator of this bot.")


def _refused(name: str, problem: str) -> MessageFile:
    return MessageFile(name, f"The file {_plain(name)[:_MAX_NAME_BYTES]} is not stored: {problem}", problem=problem)


def _kept(store: _Store, name: str, file: BinaryIO, declared: str) -> MessageFile:
    size, plain = os.fstat(file.fileno()).st_size, _safe_name(name)
    file.seek(0)
    kind = _type(file.read(_HEAD_BYTES))
    if not size:
        return _refused(name, "it is empty. Send it again.")
    if kind == "text/html" and declared and declared not in _MAY_BE_HTML:
        what = _plain(declared)[:_MAX_TYPE_CHARS]
        return _refused(name, f"it arrived as a web page instead of {what}, probably a login page. Send it again.")
    path = store.put(plain, file, size)
    found = _read(file, kind, size)
    facts = [kind, _counted(size, "byte"), found.get("facts", "")]
    is_text = kind.startswith("text/") and declared.startswith(("text/", "application/"))
    if declared not in ("", kind, "application/octet-stream") and not is_text:
        facts.append(f"declared as {_plain(declared)[:_MAX_TYPE_CHARS]}")
    note, problem = f"{plain}: {', '.join(filter(None, facts))}, stored at {path}", found.get("problem", "")
    text, image, image_path = found.get("text", ""), found.get("image", ""), path
    is_document = kind == "application/pdf"
    most = _MAX_DOCUMENT_CHARS if is_document else _MAX_TEXT_CHARS
    try:
        if "copy" in found:
            copy = base64.b64decode(found["copy"])
            image_path = store.put(f"{plain}.shown.{image[6:]}", copy, len(copy))
        if is_document and len(text) > most:
            whole = sendable(text).encode()
            note += f", its whole text at {store.put(f'{plain}.txt', whole, len(whole))}"
    except OSError as e:
        image, problem = "", f"it could be read only in part ({e.strerror or e})."
    if len(text) > most:
        text, note = text[:most], f"{note}, only its beginning is shown"
    return MessageFile(name, note, _quoted(text), image, image_path if image else "", problem)


class _Store:
    """The folder `files/<id>` of a workspace."""

    def __init__(self, root: Path, file_id: str, limits: Mapping[str, int], cancelled: threading.Event) -> None:
        self._cancelled = cancelled
        self._root = root.resolve()
        self._parts = [_TOP, _folder_of(file_id)]
        quota_mb = limits.get("quota_mb")
        bounds = Limits(
            None if quota_mb is None else quota_mb * MB, limits.get("quota_files"), limits.get("reserve_mb", 0) * MB
        )
        self._quota = Quota(self._root, bounds)

    def put(self, name: str, data: BinaryIO | bytes, size: int) -> str:
        """Store a file unless it is there; return its path.

        Raises:
            OSError: it cannot be stored.
        """
        parts = [*self._parts, name]
        with suppress(FileNotFoundError), open_folder(self._root, self._parts) as place:
            if not stat.S_ISREG(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                raise FileExistsError(f"{'/'.join(parts)} is not a file. Delete it, and send the file again")
            return "/".join(parts)
        with self._quota.room(parts, size, append=False), open_folder(self._root, self._parts, create=True) as place:
            draft = f"{DRAFT}{secrets.token_hex(8)}"
            try:
                with os.fdopen(os.open(draft, _NEW, 0o600, dir_fd=place), "wb") as file:
                    if isinstance(data, bytes):
                        file.write(data)
                    else:
                        data.seek(0)
                        shutil.copyfileobj(data, file)
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileNotFoundError):  # another delivery of it may have been faster
                    os.stat(name, dir_fd=place, follow_symlinks=False)
                    return "/".join(parts)
                with _MOVING:
                    if self._cancelled.is_set():
                        raise OSError(errno.ECANCELED, "its author has removed it")
                    os.rename(draft, name, src_dir_fd=place, dst_dir_fd=place)
                os.fsync(place)
            finally:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=place)
        return "/".join(parts)


def _folder_of(file_id: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]{1,40}", file_id):
        return file_id
    return f"file-{hashlib.sha256(file_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _type(head: bytes) -> str:  # noqa: PLR0911 - one for each test
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], "application/octet-stream")
    if head[4:8] == b"ftyp":
        return "image/heic" if head[8:11] in (b"hei", b"mif") else "video/mp4"
    if head[257:262] == b"ustar":
        return "application/x-tar"
    if _HTML.match(head):
        return "text/html"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "text/plain"
    return "application/octet-stream" if b"\0" in head else "text/plain"


def _read(file: BinaryIO, kind: str, size: int) -> dict[str, Any]:
    if kind.startswith("text/"):
        file.seek(0)
        data = file.read(_MAX_READ_BYTES)
        codec = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
        try:
            text = data.decode(codec, "strict" if size <= _MAX_READ_BYTES else "replace")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
        return {"facts": _counted(len(text.splitlines()), "line"), "text": text}
    jobs = {"application/pdf": "pdf", "application/zip": "zip", **dict.fromkeys(_TARS, "tar")}
    job = "image" if kind.startswith("image/") else jobs.get(kind)
    return {} if job is None else _asked(file, job)


def _asked(file: BinaryIO, job: str) -> dict[str, Any]:
    """Read a file in a process with limits."""
    words = [sys.executable, "-I", attachment_process.__file__, str(file.fileno()), job]
    with _CHILDREN, tempfile.TemporaryFile() as reply:
        try:
            subprocess.run(  # noqa: S603 - our own program
                words,
                stdin=subprocess.DEVNULL,
                stdout=reply,
                stderr=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                env={"PATH": os.defpath},
                timeout=_TIME_LIMIT_S,
                check=True,
            )
            reply.seek(0)
            found: dict[str, Any] = json.load(reply)
        except (subprocess.SubprocessError, ValueError):
            return {"problem": "it takes too much time or memory to read. Send a smaller or simpler copy."}
    return found


def _counted(count: int, one: str) -> str:
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def _plain(text: str) -> str:
    kept = (" " if category(sign)[0] in "CZ" else sign for sign in normalize("NFC", text))
    return " ".join("".join(kept).split())


def _safe_name(name: str) -> str:
    """Return a name of one part, without characters that separate, hide or reorder text; its extension is kept."""
    plain = re.sub(r'[/\\:*?"<>|`]', "_", _plain(name[:5_000])).lstrip(".- ").rstrip(". ")
    stem, dot, extension = plain.rpartition(".")
    if not dot or not re.fullmatch(r"[A-Za-z0-9]{1,10}", extension):
        stem, extension = plain, ""
    stem = stem.encode()[:_MAX_NAME_BYTES].decode("utf-8", "ignore").strip() or "file"
    stem = f"_{stem}" if _RESERVED.fullmatch(stem) else stem
    return f"{stem}.{extension}" if extension else stem


def _quoted(text: str) -> str:
    lines = sendable(text).splitlines()
    return "\n".join(
        "> " + "".join(sign for sign in line if sign == "\t" or category(sign)[0] != "C") for line in lines
    )
