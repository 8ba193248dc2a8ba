from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.web.async_client import AsyncWebClient

from connector.message_text import SlackFile
from connector.slack_api.client import SlackClient
from connector.slack_api.downloads import FileRefused, check_address, download
from connector.slack_api.rate_limiter import RateLimiter

TOKEN = "xoxb-secret"
ATTACHED = {"Content-Disposition": "attachment; filename*=UTF-8''a.txt"}
FILE = SlackFile("F1", "a.txt", 5, "text/plain")

# Where the token never goes, if Slack is slack.com.
FOREIGN = (
    *("http://files.slack.com/a", "https://files.slack.com.evil.example/a", "https://evilslack.com/a"),
    *("https://slack.com@evil.example/a", "https://evil.example/https://files.slack.com/a", "https:///a"),
    *("https://evil.example#files.slack.com", "https://evil.example?files.slack.com", "file:///etc/passwd"),
    *("https://files.slack.com:8443/a", "https://files.slack.com:99999/a", "https://files.slack.com:x/a"),
    *(
        "https://user:pw@files.slack.com/a",
        "https://@files.slack.com/a",
        "ftp://files.slack.com/a",
        "//files.slack.com",
    ),
    *("https://127.0.0.1/a", "https://[::1]/a", "https://[::ffff:127.0.0.1]/a", "https://localhost/a", "https://0/a"),
    *("https://169.254.169.254/latest/meta-data", "https://10.0.0.1/a", "https://2130706433/a", "https://0x7f.1/a"),
    *("https://metadata.google.internal/", "gopher://files.slack.com/a", "data:text/plain,a", "javascript:alert(1)"),
    *(
        "https://slack.com.",
        "https://files.slack.com./a",
        "https://slack-files.com.evil.example",
        "https://slackfiles.com",
    ),
    *("https://files\u3002slack\u3002com/a", "https://files.slack.com%2eevil.example/a", "https://slack\u2024com/a"),
    *("https://files.slack.com\\@evil.example/a", "https://evil.example\\.slack.com/a", "https://[slack.com]/a"),
    *("", "/", "a", "https://", "https:files.slack.com/a", "\nhttps://evil.example", "https://xn--slack-.com/"),
)
OF_SLACK = (
    *("https://files.slack.com/files-pri/T1-F1/a.txt", "https://files-origin.slack.com/a", "https://slack-files.com/a"),
    *("https://a.slack-files.com/a", "https://slack.com:443/a", "https://FILES.SLACK.COM/a"),
)


@pytest.mark.parametrize("url", FOREIGN)
def test_the_token_goes_to_no_other_host(url):
    with pytest.raises(FileRefused, match="not in Slack"):
        check_address("https://slack.com/api/", url)


@pytest.mark.parametrize("url", OF_SLACK)
def test_the_token_goes_to_slack(url):
    check_address("https://slack.com/api/", url)


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1:8001/a", "https://127.0.0.1:8000/a", "http://localhost:8000/a", "http://127.0.0.2:8000/a"),
        *("http://127.0.0.1/a", "http://127.0.0.1:8000@evil.example/a"),
    ],
)
def test_the_token_goes_to_the_server_that_stands_for_slack_only(url):
    check_address("http://127.0.0.1:8000/api/", "http://127.0.0.1:8000/files-pri/a")
    with pytest.raises(FileRefused):
        check_address("http://127.0.0.1:8000/api/", url)


class Server:
    """An HTTP server that stands for Slack or another host, and keeps the requests and tokens that it gets."""

    def __init__(self, answer):
        self.answer, self.tokens, self.url = answer, [], ""

    async def _handle(self, request):
        self.tokens.append(request.headers.get("Authorization"))
        return await self.answer(request, len(self.tokens))

    @asynccontextmanager
    async def running(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


@asynccontextmanager
async def slack(answer, call_within_s=15.0):
    timeout = aiohttp.ClientTimeout(total=call_within_s)
    async with Server(answer).running() as server, aiohttp.ClientSession(timeout=timeout) as session:
        web_client = AsyncWebClient(token=TOKEN, base_url=f"{server.url}/api/", session=session)
        yield server, SlackClient(web_client, RateLimiter("T0LOCAL"))


def text(body=b"hello", **headers):
    return web.Response(body=body, content_type="text/plain", headers=headers)


def page(status=200, **headers):
    return web.Response(text="<!DOCTYPE html>Sign in", content_type="text/html", status=status, headers=headers)


async def endless(request, _):
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    while True:
        await response.write(b"a" * 100_000)


async def cut(request, number):
    if number > 1:
        return text()
    response = web.StreamResponse(headers={"Content-Type": "text/plain", "Content-Length": "500"})
    await response.prepare(request)
    await response.write(b"hel")
    request.transport.close()
    return response


async def slow(request, _):
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    for letter in b"hello":
        await response.write(bytes([letter]))
        await asyncio.sleep(0.1)
    return response


async def silent(_request, _):
    await asyncio.Event().wait()


def always(response):
    async def answer(_request, _):
        return response()

    return answer


def first(response, *, then=text):
    async def answer(_request, number):
        return response() if number == 1 else then()

    return answer


def to(url):
    return lambda: web.Response(status=302, headers={"Location": url})


async def fetched(client, server, tmp_path, file=FILE, *, most=1000, within_s=20.0):
    file = replace(file, url=file.url or f"{server.url}/files-pri/a.txt")
    await download(client, file, tmp_path / "a", most, within_s)
    return (tmp_path / "a").read_bytes()


GOOD = {
    "at once": always(text),
    "after a redirect": first(to("/elsewhere")),
    "after an outage": first(lambda: web.Response(status=503)),
    "after a rate limit": first(lambda: web.Response(status=429)),
    "after a cut connection": cut,
}


@pytest.mark.parametrize("answer", GOOD.values(), ids=GOOD)
async def test_a_file_is_downloaded_with_the_token(tmp_path, answer):
    async with slack(answer) as (server, client):
        assert await fetched(client, server, tmp_path) == b"hello"
        assert set(server.tokens) == {f"Bearer {TOKEN}"}


SCOPE = "files:read"
REFUSED = {
    "a page to sign in": (always(page), SCOPE),
    "a page to sign in after a redirect": (first(to("/login"), then=page), SCOPE),
    "forbidden": (always(lambda: page(403)), SCOPE),
    "unauthorized": (always(lambda: web.Response(status=401)), SCOPE),
    "a page of another type": (
        always(lambda: web.Response(text="<html>", content_type="application/xhtml+xml")),
        SCOPE,
    ),
    "deleted": (always(lambda: web.Response(status=404)), "it was deleted"),
    "gone": (always(lambda: web.Response(status=410)), "it was deleted"),
    "announced as too large": (always(lambda: text(b"a" * 1001)), "too large"),
    "endless": (endless, "too large"),
    "redirects without end": (always(to("/again")), "redirects too often"),
    "an outage": (always(lambda: web.Response(status=500)), "did not send it"),
    "a strange status": (always(lambda: web.Response(status=418)), r"\(418\)"),
    "a redirect without an address": (always(lambda: web.Response(status=302)), r"\(302\)"),
    "to a private address": (always(to("http://127.0.0.1:1/a")), "not in Slack"),
    "to a file": (always(to("file:///etc/passwd")), "not in Slack"),
    "to metadata": (always(to("http://169.254.169.254/")), "not in Slack"),
    "to a name like Slack's": (always(to("https://slack.com.evil.example/")), "not in Slack"),
    "with a name before the host": (always(to("https://slack.com@evil.example/")), "not in Slack"),
    "to a malformed address": (always(to("http://[::1")), "did not send it|not in Slack"),
    "without a scheme": (always(to("//evil.example/a")), "not in Slack"),
}


@pytest.mark.parametrize(("answer", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_file_that_cannot_be_read_is_refused_with_a_reason(tmp_path, answer, why):
    async with slack(answer) as (server, client):
        with pytest.raises(FileRefused, match=why):
            await fetched(client, server, tmp_path)


async def test_a_file_that_takes_too_long_is_refused(tmp_path):
    async with slack(silent) as (server, client):
        with pytest.raises(FileRefused, match=r"within 0\.3 s"):
            await fetched(client, server, tmp_path, within_s=0.3)


async def test_a_file_may_take_longer_than_a_call(tmp_path):
    async with slack(slow, call_within_s=0.3) as (server, client):
        assert await fetched(client, server, tmp_path) == b"hello"
        assert len(server.tokens) == 1


async def test_a_file_is_requested_again_when_the_retry_after_has_passed(tmp_path):
    began_s = asyncio.get_running_loop().time()
    limited = first(lambda: web.Response(status=429, headers={"Retry-After": "1"}))
    async with slack(limited) as (server, client):
        assert await fetched(client, server, tmp_path) == b"hello"
    assert asyncio.get_running_loop().time() - began_s >= 1


async def test_a_redirect_to_another_host_carries_no_token_there(tmp_path):
    async with Server(always(text)).running() as foreign, slack(always(to(foreign.url))) as (server, client):
        with pytest.raises(FileRefused, match="not in Slack"):
            await fetched(client, server, tmp_path)
        assert foreign.tokens == []


async def test_a_large_file_is_refused_before_it_is_requested(tmp_path):
    async with slack(always(text)) as (server, client):
        with pytest.raises(FileRefused, match="too large"):
            await fetched(client, server, tmp_path, replace(FILE, size=30_000_000), most=25_000_000)
        assert server.tokens == []


async def test_a_web_page_that_a_person_uploads_is_downloaded(tmp_path):
    html = SlackFile("F1", "a.html", 5, "text/html")
    async with slack(always(lambda: page(**ATTACHED))) as (server, client):
        assert (await fetched(client, server, tmp_path, html)).startswith(b"<!DOCTYPE")
    async with slack(always(page)) as (server, client):
        with pytest.raises(FileRefused, match=SCOPE):
            await fetched(client, server, tmp_path, html)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"ok": False, "error": "file_not_found"}, "it was deleted"),
        ({"ok": False, "error": "missing_scope", "needed": "files:read"}, SCOPE),
        ({"ok": False, "error": "not_in_channel"}, "not_in_channel"),
        ({"ok": True, "file": {"id": "F1", "name": "a"}}, "not stored in Slack"),
    ],
)
async def test_a_file_without_an_address_is_looked_up(tmp_path, answer, why):
    async with slack(always(lambda: web.json_response(answer))) as (_, client):
        with pytest.raises(FileRefused, match=why):
            await download(client, FILE, tmp_path / "a", 1000, 5.0)


async def test_a_file_of_another_organisation_is_downloaded_from_where_slack_says(tmp_path):
    async def answer(request, _):
        if "api" not in request.path:
            return text()
        found = {"id": "F1", "name": "b.txt", "url_private_download": f"{server.url}/b", "mimetype": "text/csv"}
        return web.json_response({"ok": True, "file": found})

    async with slack(answer) as (server, client):
        file = await download(client, FILE, tmp_path / "a", 1000, 5.0)
    assert (file.name, file.mimetype, (tmp_path / "a").read_bytes()) == ("b.txt", "text/csv", b"hello")


async def test_a_file_outside_of_slack_is_not_requested(tmp_path):
    async with slack(always(text)) as (server, client):
        with pytest.raises(FileRefused, match="kept outside of Slack"):
            await fetched(client, server, tmp_path, replace(FILE, is_elsewhere=True))
        assert server.tokens == []
