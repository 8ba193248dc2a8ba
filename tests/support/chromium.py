"""One Chromium for many tests; each uses its own window."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from typing import IO
from urllib.parse import urlsplit

from playwright.async_api import Browser, async_playwright
from playwright.async_api import TimeoutError as NoAnswer

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-renderer-backgrounding",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_LISTENS = re.compile(rb"DevTools listening on (ws://\S+)")

_STARTS = 3
# On a loaded machine, the first start fills the caches of fonts.
_ANSWERS_WITHIN_S = 45
# On a loaded machine, the browser may leave a connection without an answer; it answers the next one.
_CONNECTIONS = 4
_CONNECTED_WITHIN_MS = 25_000


@contextmanager
def chromium() -> Iterator[str]:
    """Run it; gives the address for `connected_to`."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    assert program, "Chromium is missing: apt-get install chromium (make test does it where it may)"
    for start in range(_STARTS):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            command = [program, *_ARGUMENTS, f"--user-data-dir={profile}"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:  # noqa: S603 - found above
                try:
                    assert process.stderr is not None
                    address = _address(process.stderr)
                    if _answers(address) or start == _STARTS - 1:
                        yield address
                        return
                finally:
                    process.kill()


@asynccontextmanager
async def connected_to(address: str) -> AsyncIterator[Browser]:
    """A connection for windows of one's own, which are closed with it.

    Raises:
        playwright.async_api.TimeoutError: The browser does not answer.
    """
    async with async_playwright() as playwright:
        for connection in range(1, _CONNECTIONS + 1):
            try:
                browser = await playwright.chromium.connect_over_cdp(address, timeout=_CONNECTED_WITHIN_MS)
                break
            except NoAnswer:
                if connection == _CONNECTIONS:
                    raise
        yield browser
        await browser.close()


def _answers(address: str) -> bool:
    """Return whether the browser itself answers, and not only its port."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=_ANSWERS_WITHIN_S)
    try:
        connection.request("GET", "/json/version")
        return connection.getresponse().status == HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _address(said: IO[bytes]) -> str:
    seen = b""
    for line in said:
        seen += line
        if found := _LISTENS.search(line):
            threading.Thread(target=said.read, daemon=True).start()  # so that its pipe never fills up
            return found[1].decode()
    raise AssertionError(f"Chromium did not start:\n{seen.decode(errors='replace')}")
