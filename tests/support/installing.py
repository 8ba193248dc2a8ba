"""A browser that installs the app in a workspace: the service's page, Slack's page, and back."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import aiohttp

from local_slack import LocalSlack

_COOKIE = re.compile(r"^([^=]+)=([^;]+)")


async def install(public_url: str, place: str, answer: str = "allow", **changes: str) -> tuple[int, str]:
    """Install the app in a place as a person does; return the status and the text of the last page.

    `changes` replace fields of Slack's form.
    """
    return await come_back(*await allow(public_url, place, answer, **changes))


async def allow(public_url: str, place: str, answer: str = "allow", **changes: str) -> tuple[str, str]:
    """Answer Slack's page; return the address to which Slack sends the browser, and its cookie."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as browser:
        async with browser.get(f"{public_url}/slack/install") as response:
            page = await response.text()
            assert response.status == 200, page
            cookie = _COOKIE.match(response.headers["Set-Cookie"])[0]  # for secure addresses only, as in browsers
        [slack] = re.findall(r"href='([^']+)'>Add to Slack", page)
        async with browser.get(unescape(slack)) as response:
            page = await response.text()
            assert response.status == 200, page
        form = {name: unescape(value) for name, value in re.findall(r"type=hidden name=(\w+) value='([^']*)'", page)}
        where = unescape(slack).partition("?")[0]
        form |= {**changes, "place": place, "answer": answer}
        async with browser.post(where, data=form, allow_redirects=False) as response:
            return response.headers["Location"], cookie


async def come_back(address: str, cookie: str) -> tuple[int, str]:
    """Open the page to which Slack has sent the browser; return its status and its text."""
    async with aiohttp.request("GET", address, headers={"Cookie": cookie}) as response:
        return response.status, await response.text()


async def code_of(slack: LocalSlack, place: str, return_url: str) -> str:
    """Return the code by which an app gets the token of a place: a person has allowed it."""
    given = {"client_id": slack.variables["SLACK_CLIENT_ID"], "scope": "chat:write", "redirect_uri": return_url}
    form = {**given, "place": place, "answer": "allow"}
    async with (
        aiohttp.ClientSession() as browser,
        browser.post(f"{slack.url}oauth/v2/authorize", data=form, allow_redirects=False) as response,
    ):
        return parse_qs(urlsplit(response.headers["Location"]).query)["code"][0]


def calls(slack: LocalSlack, method: str) -> list[dict]:
    """Return the recorded calls of a method."""
    return [each for each in slack.record if each.get("method") == method]
