"""Single calls to Slack's Web API, without retries: the doctor reports the first failure."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from connector.slack_api.errors import SlackCallFailed, failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class WebApiAnswer:
    """Slack's answer, with headers by lower-case name; `at_s` is the local time at the middle of the call."""

    data: Mapping[str, Any]
    headers: Mapping[str, str]
    at_s: float


class WebApi:
    """Slack's Web API at one URL. `http` is the client for other requests."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str) -> AsyncIterator[WebApi]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_WITHIN_S)) as http:
            yield cls(url, http)

    async def call(self, method: str, token: str, **arguments: str) -> WebApiAnswer:
        """Call a method.

        Raises:
            SlackCallFailed: Slack returned an error, or no valid answer.
        """
        client = AsyncWebClient(token, base_url=self.url, session=self.http, retry_handlers=[])
        begun_s = time.time()
        try:
            response = await client.api_call(method, data=arguments)
        except SlackApiError as e:
            raise failure(method, e) from e
        except (aiohttp.ClientError, TimeoutError, OSError, AttributeError, TypeError, ValueError) as e:
            # The SDK raises the last three for an answer that is not from Slack.
            raise SlackCallFailed(method, "no_answer") from e
        if not isinstance(response.data, dict):
            raise SlackCallFailed(method, "no_answer")
        headers = {name.lower(): value for name, value in response.headers.items()}
        return WebApiAnswer(response.data, headers, (begun_s + time.time()) / 2)
