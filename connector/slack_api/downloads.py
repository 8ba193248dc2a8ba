"""Download files of messages from Slack. Its token goes to Slack's own hosts only, also after a redirect."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import aiohttp
import structlog

from connector.formatting.content import one_line
from connector.slack_api.errors import Backoff, SlackCallFailed, seconds_of
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from connector.message_text import SlackFile
    from connector.slack_api.client import SlackClient

log = structlog.get_logger(__name__)

MB = 1_000_000
_HOSTS = ("slack.com", "slack-files.com")
_REDIRECTS = 3
_MOVED = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({429, 500, 502, 503, 504})
_CHUNK_BYTES = 256 * 1024
_ATTEMPTS = 3
_PAUSE = Backoff(0.5, 2.0)
# Without signs that the client may take for the end of the host.
_HOST = re.compile(r"[a-z0-9.-]+")
_HTML = ("text/html", "application/xhtml+xml")
_NAME_CHARS = 80


class FileRefused(Exception):  # noqa: N818 - a fact about the file, shown to its author
    """A file cannot be downloaded; the error's text is a sentence for its author."""


class _Failed(Exception):  # noqa: N818
    """An attempt failed for a reason that may pass, at the earliest after `retry_after_s`."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s or 0.0


async def download(client: SlackClient, file: SlackFile, to: Path, most_bytes: int, within_s: float) -> SlackFile:
    """Write a file of a message to a path; return it with all that Slack tells about it.

    Raises:
        FileRefused: it is too large, deleted, kept elsewhere, or not accessible; or the time is over.
    """
    try:
        async with asyncio.timeout(within_s):
            if file.is_elsewhere:
                raise FileRefused("it is kept outside of Slack. Please upload a copy, or paste the part that matters.")
            if not file.url:
                file = await _looked_up(client, file)
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    await _fetch(client, file, to, most_bytes)
                except _Failed as e:
                    log.info("file.retry", file=file.id, error=str(e))
                    if attempt == _ATTEMPTS:
                        raise FileRefused("Slack did not send it. Please upload it again.") from e
                    await asyncio.sleep(max(_PAUSE.delay_s(attempt), e.retry_after_s))
                else:
                    return file
    except TimeoutError as e:
        raise FileRefused(f"Slack did not send it within {within_s:g} s. Please upload it again.") from e
    raise AssertionError("unreachable")


async def _looked_up(client: SlackClient, file: SlackFile) -> SlackFile:
    """Return a file with its address, which Slack leaves out of messages of other organisations.

    Raises:
        FileRefused: there is none.
    """
    try:
        found = (await client.call("files.info", {"file": file.id}, CallSlot(Priority.PERSON)))["file"]
    except SlackCallFailed as e:
        if e.error in {"file_not_found", "file_deleted"}:
            raise FileRefused("it was deleted.") from e
        if e.error == "missing_scope":
            raise FileRefused(_no_access()) from e
        raise FileRefused(f"Slack does not give it ({e.error}). Please upload it again.") from e
    looked_up = file.completed(found)
    if not looked_up.url:
        raise FileRefused("it is not stored in Slack. Please upload a copy.")
    return looked_up


async def _fetch(client: SlackClient, file: SlackFile, to: Path, most_bytes: int) -> None:
    if file.size > most_bytes:
        raise _too_large(file.size, most_bytes)
    url = file.url
    try:
        for _ in range(_REDIRECTS + 1):
            check_address(client.base_url, url)
            async with client.get(url) as response:
                if response.status in _MOVED and "Location" in response.headers:
                    url = urljoin(url, response.headers["Location"])
                    continue
                _check(file, response)
                if (response.content_length or 0) > most_bytes:
                    raise _too_large(response.content_length or 0, most_bytes)
                with to.open("wb") as target:
                    await _copy(response, target, most_bytes)
                return
    except (aiohttp.ClientError, OSError, ValueError) as e:
        raise _Failed(f"{type(e).__name__}") from e
    raise FileRefused("Slack redirects too often. Please upload it again.")


async def _copy(response: aiohttp.ClientResponse, target: BinaryIO, most_bytes: int) -> None:
    """Write the content of a response.

    Raises:
        FileRefused: it is too large.
    """
    written = 0
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        written += len(chunk)
        if written > most_bytes:
            raise _too_large(written, most_bytes)
        target.write(chunk)


def _check(file: SlackFile, response: aiohttp.ClientResponse) -> None:
    """Check that a response is the file.

    Raises:
        FileRefused: it is not; a page to sign in shows that the token lacks a scope.
    """
    if response.status in _BUSY:
        raise _Failed(str(response.status), seconds_of(response.headers.get("Retry-After")))
    if response.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        raise FileRefused("it was deleted.")
    is_page = response.content_type in _HTML
    is_attached = response.headers.get("Content-Disposition", "").startswith("attachment")
    if response.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN} or (
        is_page and not (file.mimetype in _HTML and is_attached)
    ):
        raise FileRefused(_no_access())
    if response.status != HTTPStatus.OK:
        raise FileRefused(f"Slack does not send it ({response.status}). Please upload it again.")


def check_address(api_url: str, url: str) -> None:
    """Check that the token may be sent to an address: one of Slack, or of the server that stands for it.

    Raises:
        FileRefused: it may not.
    """
    try:
        parts, api = urlsplit(url), urlsplit(api_url)
        host, port = parts.hostname or "", parts.port
        is_slack = parts.scheme == "https" and port in {None, 443} and _is_of(host, _HOSTS)
        stands_for_slack = not _is_of(api.hostname or "", _HOSTS) and (parts.scheme, host, port) == (
            api.scheme,
            api.hostname,
            api.port,
        )
    except ValueError:
        host, is_slack, stands_for_slack = "", False, False
    has_credentials = "@" in urlsplit(url).netloc if host else False
    if has_credentials or not (is_slack or stands_for_slack):
        where = one_line(host, _NAME_CHARS) or "an address without a host"
        raise FileRefused(f"it is kept at {where}, not in Slack. Please upload a copy.")


def _is_of(host: str, domains: tuple[str, ...]) -> bool:
    return _HOST.fullmatch(host) is not None and any(host == each or host.endswith(f".{each}") for each in domains)


def _too_large(size: int, most_bytes: int) -> FileRefused:
    return FileRefused(f"it is too large ({size / MB:,.1f} MB; at most {most_bytes / MB:,.0f} MB).")


def _no_access() -> str:
    return "this bot may not read files. An administrator can add the scope `files:read` to the app."
