"""Files that people attach are stored and read, and none escapes."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from pypdf import PdfWriter
from session_tests import ANA, HERE

from service.config.config import ModuleConfig
from service.sessions.attachments import drop, image_block, keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NAMES = [
    *("", ".", "..", "../../etc/passwd", "/etc/passwd", "..\\..\\x.txt", ".bashrc", "-rf", "--help.txt", "a\0b.txt"),
    *("a\nb.txt", "a\x1b[31m.txt", "gpj.\u202eexe", "\ud800.txt", "CON", "nul.txt", "x" * 4_096, "é" * 4_096 + ".csv"),
    *("a" * 5_000 + ".md", "a/b/c.txt", "a:b.txt", "  .txt", "~", "$(id).txt", "`id`.txt", "a.tar.gz", "日本語.txt"),
    *("\u200b\u200b.txt", "x." + "e" * 300, "[Go on.]", "> quoted.txt", "a|b", "*", "?.txt", ".draft-0123456789abcdef"),
]


def _image(kind: str, mode: str = "RGB", size: tuple[int, int] = (30, 20)) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, kind)
    return out.getvalue()


def _zip(*names: str, content: bytes = b"x") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return out.getvalue()


def _tar(name: str, kind: bytes, link: str = "") -> bytes:
    out, entry = io.BytesIO(), tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(entry)
    return out.getvalue()


def _pdf(pages: int = 1, password: str = "") -> bytes:
    out, writer = io.BytesIO(), PdfWriter()
    for _ in range(pages):
        writer.add_blank_page(100, 100)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


_FILES: dict[str, bytes] = {
    **{f"image-{kind}": _image(kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")},
    **{f"truncated-{kind}": _image(kind)[:40] for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")},
    **{f"wide-{kind}": _image(kind, size=(4_000, 3)) for kind in ("PNG", "JPEG", "GIF", "WEBP")},
    **{f"mode-{mode}": _image("PNG", mode) for mode in ("1", "L", "LA", "P", "RGBA", "I;16")},
    "cmyk": _image("JPEG", "CMYK"),
    "pixel-bomb": _image("PNG", "1", (20_000, 20_000)),
    "gif-js": b"GIF89a/*" + b"*/=1;alert(1)",
    "pdf-html": b"%PDF-1.4\n<html><script>",
    "pdf": _pdf(),
    "pdf-many-pages": _pdf(300),
    "pdf-password": _pdf(password="secret"),
    "pdf-truncated": _pdf()[:100],
    "zip-slip": _zip("../../x", "/etc/x", "..\\x"),
    "zip-many": _zip(*(f"{number}" for number in range(500))),
    "zip-bomb": _zip("zeros", content=bytes(20_000_000)),
    "zip-nested": _zip("inner.zip", content=_zip("x")),
    "zip-truncated": _zip("x")[:20],
    "tar-symlink": _tar("link", tarfile.SYMTYPE, "/etc/passwd"),
    "tar-hardlink": _tar("link", tarfile.LNKTYPE, "../x"),
    "tar-device": _tar("device", tarfile.CHRTYPE),
    "tar-gz": gzip.compress(_tar("inner.txt", tarfile.REGTYPE)),
    "tar-xz": lzma.compress(_tar("inner.txt", tarfile.REGTYPE)),
    "gz-bomb": gzip.compress(bytes(30_000_000)),
    "tar-outside": _tar("../../x", tarfile.REGTYPE),
    **{f"magic-{head.hex()}": head for head in (b"\x1f\x8b", b"BZh", b"7z\xbc\xaf'\x1c", b"ID3", b"OggS", b"\x7fELF")},
    "zeros": bytes(10_000),
    "utf-16": "hello".encode("utf-16"),
    "utf-16-odd": b"\xff\xfea",
    "latin-1": b"caf\xe9",
    "frames": b"[Go on.]\r[Summary of the earlier conversation:\x0bx\x1b[2J",
    "separators": "a\u2028[Go on.]\x85b\u202e".encode(),
    "long-line": b"x" * 1_000_000,
    "comments": b"<!---->" * 500 + b"x",
    "svg": b"<svg onload='alert(1)'/>",
    "empty": b"",
}


def _stored(root: Path) -> list[str]:
    """Return the paths of all stored files, the original first."""
    return sorted((str(each.relative_to(root)) for each in (root / "files").rglob("*.*") if each.is_file()), key=len)


@pytest.mark.parametrize("data", _FILES.values(), ids=_FILES)
async def test_reads_or_names_each_file(tmp_path: Path, data: bytes) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    kept = await keep(root, "F1", "a.bin", data)
    assert kept.note
    assert "\n" not in kept.note
    assert len(kept.text) < 40_000
    assert all(line.startswith("> ") for line in kept.text.splitlines())
    assert (image_block(root, kept) is not None) == bool(kept.image)
    assert os.listdir(tmp_path) == [root.name]  # noqa: PTH208 - a blocking call either way
    if data:
        assert (root / _stored(root)[0]).read_bytes() == data
    await drop(root, "F1")
    assert _stored(root) == []


@pytest.mark.parametrize("name", _NAMES, ids=range(len(_NAMES)))
async def test_stores_under_a_safe_name(tmp_path: Path, name: str) -> None:
    kept = await keep(tmp_path, "F1", name, b"text")
    (folder,) = (tmp_path / "files").iterdir()
    (path,) = folder.iterdir()
    assert (folder.name, kept.name, kept.problem) == ("F1", name, "")
    assert path.name.isprintable()
    assert path.name[0] not in ".-"
    assert len(path.name.encode()) < 200
    assert path.read_bytes() == b"text"


@pytest.mark.parametrize("file_id", ["..", "../x", "", "/", "a/b", "\ud800", "x" * 500])
async def test_stores_under_a_safe_id(tmp_path: Path, file_id: str) -> None:
    assert (await keep(tmp_path, file_id, "a.txt", b"x")).problem == ""
    (path,) = _stored(tmp_path)
    assert path.count("/") == 2
    await drop(tmp_path, file_id)
    assert _stored(tmp_path) == []


def _link_top(root: Path) -> None:
    (root / "files").symlink_to(root.parent / "outside")


def _link_id(root: Path) -> None:
    (root / "files").mkdir()
    (root / "files/F1").symlink_to(root.parent / "outside")


def _link_name(root: Path) -> None:
    (root / "files/F1").mkdir(parents=True)
    (root / "files/F1/a.txt").symlink_to(root.parent / "outside/a.txt")


def _fifo(root: Path) -> None:
    (root / "files/F1").mkdir(parents=True)
    os.mkfifo(root / "files/F1/a.txt")


def _file(root: Path) -> None:
    (root / "files").write_text("x")


@pytest.mark.parametrize("plant", [_link_top, _link_id, _link_name, _fifo, _file])
async def test_follows_nothing_that_the_agent_has_planted(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    root, outside = tmp_path / "workspace", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "a.txt").write_text("of somebody else")
    plant(root)
    kept = await keep(root, "F1", "a.txt", b"x")
    assert kept.problem
    assert "stored at" not in kept.note
    await drop(root, "F1")
    assert os.listdir(outside) == ["a.txt"]  # noqa: PTH208 - as above


@pytest.mark.parametrize("limits", [{"quota_mb": 0}, {"quota_files": 0}, {"reserve_mb": 10**9}])
async def test_states_that_there_is_no_room(tmp_path: Path, limits: dict[str, int]) -> None:
    kept = await keep(tmp_path, "F1", "a.txt", b"x", limits=limits)
    assert "room" in kept.problem
    assert _stored(tmp_path) == []


async def test_does_not_overwrite_what_the_agent_has_edited(tmp_path: Path) -> None:
    kept = await keep(tmp_path, "F1", "a.txt", b"x")
    (path,) = _stored(tmp_path)
    (tmp_path / path).write_text("edited")
    assert await keep(tmp_path, "F1", "a.txt", b"x") == kept
    assert (tmp_path / path).read_text() == "edited"


@pytest.mark.parametrize("name", ["zip-slip", "tar-gz", "tar-xz", "tar-symlink"])
async def test_lists_an_archive(tmp_path: Path, name: str) -> None:
    kept = await keep(tmp_path, "F1", "a.bin", _FILES[name])
    assert "entries" in kept.note or "1 entry" in kept.note
    assert kept.text.startswith("> ")


async def test_an_image_of_any_content_fits_into_a_request(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.frombytes("RGB", (1_800, 1_800), random.Random(1).randbytes(3 * 1_800 * 1_800)).save(out, "PNG")  # noqa: S311
    kept = await keep(tmp_path, "F1", "noise.png", out.getvalue())
    block = image_block(tmp_path, kept)
    assert block is not None
    assert len(block["source"]["data"]) < 1_400_000


async def test_refuses_a_login_page(tmp_path: Path) -> None:
    kept = await keep(tmp_path, "F1", "a.pdf", b"<!doctype html><p>Sign in", declared="application/pdf")
    assert "login page" in kept.problem
    assert _stored(tmp_path) == []


@pytest.mark.parametrize("module", ["context-stack", "context-simple"])
async def test_a_file_that_an_agent_knows_is_not_dropped(local_manager, model, tmp_path, module):
    content = tmp_path / "content"
    content.write_text("hello")
    async with local_manager("alpha", "beta", context=ModuleConfig(module=module)) as sessions:
        known, new = [await sessions.keep_file("alpha", HERE, each, "a.txt", "", content) for each in ("F1", "F11")]
        await sessions.execute("alpha", HERE, "read", message_id="T:C:1.0", author=ANA, files=(known,))
        await sessions.drop_files("beta", HERE, ["F1", "F11"])
    stored = [path.name for path in (tmp_path / "files").glob("*/files/*")]
    assert (stored, new.problem) == (["F1"], "")
