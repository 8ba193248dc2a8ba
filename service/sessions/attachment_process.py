"""Read one hostile file in a process with limits, and print its content as JSON.

`argv[1]` is the descriptor of the file, `argv[2]` its kind.
"""

from __future__ import annotations

import base64
import io
import json
import os
import resource
import sys
import tarfile
import zipfile
from contextlib import ExitStack
from typing import Any

_MAX_MEMORY_BYTES = 1_000_000_000
_MAX_CPU_S = 15
_MAX_REPLY_BYTES = 16_000_000
_MAX_PAGES = 200
_MAX_TEXT_CHARS = 2_000_000
_MAX_PIXELS = 50_000_000
_MAX_SIDE = 1_568
# Each request contains all images of the conversation, and providers accept about 30 MB.
_MAX_IMAGE_BYTES = 1_000_000
_QUALITIES = (85, 60, 30)
_MAX_ENTRIES = 100
_MAX_COUNTED = 10_000
_SHOWN = {"PNG", "JPEG", "GIF", "WEBP"}


def _image(fd: int) -> dict[str, Any]:
    from PIL import Image, ImageOps  # noqa: PLC0415 - load only what this file needs

    Image.MAX_IMAGE_PIXELS = None  # checked here
    with os.fdopen(fd, "rb") as file, Image.open(file) as image:
        kind, size = image.format or "", image.size
        found: dict[str, Any] = {"facts": f"{size[0]} x {size[1]} pixels"}
        if size[0] * size[1] > _MAX_PIXELS:
            return {**found, "problem": "it has too many pixels. Send a smaller copy."}
        is_animated = getattr(image, "is_animated", False)
        turned = image.getexif().get(0x0112, 1) != 1
        image.load()
        fits = max(size) <= _MAX_SIDE and os.fstat(file.fileno()).st_size <= _MAX_IMAGE_BYTES
        if kind in _SHOWN and fits and not is_animated and not turned and image.mode in ("1", "L", "P", "RGB", "RGBA"):
            return {**found, "image": f"image/{kind.lower()}"}
        shown = ImageOps.exif_transpose(image)
        if shown.mode.startswith(("I", "F")):
            shown = shown.point(lambda value: value / 256).convert("L")
        shown = shown.convert("RGBA" if shown.mode in ("RGBA", "LA", "PA", "P") else "RGB")
        shown.thumbnail((_MAX_SIDE, _MAX_SIDE))
        out = io.BytesIO()
        shown.save(out, "PNG")
        for quality in _QUALITIES:
            if out.tell() > _MAX_IMAGE_BYTES:
                out = io.BytesIO()
                shown.convert("RGB").save(out, "JPEG", quality=quality)
                found["image"] = "image/jpeg"
        return {"image": "image/png", **found, "copy": base64.b64encode(out.getvalue()).decode()}


def _pdf(fd: int) -> dict[str, Any]:
    from pypdf import PdfReader  # noqa: PLC0415 - as above

    with os.fdopen(fd, "rb") as file:
        reader = PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            return {"problem": "it is protected by a password. Send a copy without one."}
        pages, texts, room = len(reader.pages), [], _MAX_TEXT_CHARS
        for number in range(min(pages, _MAX_PAGES)):
            texts.append(reader.pages[number].extract_text()[:room])
            room -= len(texts[-1])
        facts = f"{pages:,} pages" if pages != 1 else "1 page"
        if pages > _MAX_PAGES:
            facts += f", the first {_MAX_PAGES} read"
        text = "\n".join(texts)
        return {"facts": facts, "text": text} if text.strip() else {"facts": f"{facts}, no text, probably scanned"}


def _archive(fd: int, kind: str) -> dict[str, Any]:
    lines, count, total = [], 0, 0
    with os.fdopen(fd, "rb") as file, ExitStack() as opened:
        if kind == "zip":
            archive = opened.enter_context(zipfile.ZipFile(file))
            entries: Any = ((each.filename, each.file_size, "") for each in archive.infolist())
        else:
            try:
                tar = opened.enter_context(tarfile.open(fileobj=file, mode="r|*"))
            except tarfile.ReadError:
                return {}  # one compressed file
            entries = ((each.name, each.size, each.linkname) for each in tar)
        for name, size, link in entries:
            if count == _MAX_COUNTED:
                break
            count, total = count + 1, total + size
            if count <= _MAX_ENTRIES:
                is_outside = name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/")
                notes = (" (outside of the archive)" if is_outside else "") + (" (a link)" if link else "")
                lines.append(f"{' '.join(name[:300].split())}: {size:,} bytes{notes}")
    more = " or more" if count == _MAX_COUNTED else ""
    return {"facts": f"{count:,}{more} entries, {total:,} bytes unpacked", "text": "\n".join(lines)}


def main() -> None:
    """Read the file, and print the result."""
    for limit, value in (("AS", _MAX_MEMORY_BYTES), ("CPU", _MAX_CPU_S), ("FSIZE", _MAX_REPLY_BYTES), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (value, value))
    os.nice(5)
    fd, kind = int(sys.argv[1]), sys.argv[2]
    os.lseek(fd, 0, os.SEEK_SET)
    try:
        found = _image(fd) if kind == "image" else _pdf(fd) if kind == "pdf" else _archive(fd, kind)
    except Exception:  # noqa: BLE001 - parsers raise anything on a hostile file
        found = {"problem": "it is damaged or too complex to read. Send another copy."}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
