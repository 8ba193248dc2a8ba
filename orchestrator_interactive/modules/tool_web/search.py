"""Search the web through a configured search engine."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import aiohttp
from pydantic import ConfigDict, Field, field_validator, model_validator
from yarl import URL

from orchestrator_interactive.config import Options
from orchestrator_interactive.json_limits import parse_json
from orchestrator_interactive.modules.tool_web.http_client import (
    WebError,
    a_session,
    check_status,
    read_body,
    retry_time,
)
from orchestrator_interactive.modules.tool_web.reading_process import INVISIBLE

if TYPE_CHECKING:
    from collections.abc import Iterator

EngineName = Literal["wikipedia", "searxng", "brave", "tavily"]

_MAX_BYTES = 1_000_000
_MAX_TITLE_CHARS = 200
_MAX_SNIPPET_CHARS = 500
_MAX_URL_CHARS = 1_000
_TAG = re.compile(r"<[^<>]{0,200}>")


@dataclass(frozen=True, slots=True)
class SearchEngine:
    """The API of a search engine.

    Args:
        url: default address; blank: it must be configured.
        query, count: names of the parameters; blank: there is none.
        results: keys that lead to the list of results.
        snippet: key of the text of a result.
        more: other parameters.
        key_header: the header for the key, and its prefix; `None`: it needs no key.
        is_post: whether the parameters are sent as JSON.
    """

    url: str
    path: str
    query: str
    count: str
    results: tuple[str, ...]
    snippet: str
    more: tuple[tuple[str, str], ...] = ()
    key_header: tuple[str, str] | None = None
    is_post: bool = False


ENGINES: dict[EngineName, SearchEngine] = {
    # https://www.mediawiki.org/wiki/API:REST_API/Reference
    "wikipedia": SearchEngine(
        "https://en.wikipedia.org", "w/rest.php/v1/search/page", "q", "limit", ("pages",), "excerpt"
    ),
    # https://docs.searxng.org/dev/search_api.html
    "searxng": SearchEngine("", "search", "q", "", ("results",), "content", (("format", "json"),)),
    # https://api-dashboard.search.brave.com/documentation
    "brave": SearchEngine(
        "https://api.search.brave.com",
        "res/v1/web/search",
        "q",
        "count",
        ("web", "results"),
        "description",
        key_header=("X-Subscription-Token", ""),
    ),
    # https://docs.tavily.com/documentation/api-reference/endpoint/search
    "tavily": SearchEngine(
        "https://api.tavily.com",
        "search",
        "query",
        "max_results",
        ("results",),
        "content",
        key_header=("Authorization", "Bearer "),
        is_post=True,
    ),
}


class SearchOptions(Options):
    """The search engine.

    Args:
        url: its address, such as https://searx.example.com; `wikipedia` may be of another language.
        key: for `brave` and `tavily`; refer to a variable, such as `${BRAVE_API_KEY}`.
        count: number of results, if the model names none.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    engine: EngineName = "wikipedia"
    url: str = ""
    key: str = Field(default="", repr=False)
    count: int = Field(default=5, ge=1, le=10)

    @field_validator("url")
    @classmethod
    def _is_http(cls, given: str) -> str:
        if given and not given.startswith(("http://", "https://")):
            raise ValueError("the address must begin with https:// or http://")
        return given

    @field_validator("key")
    @classmethod
    def _one_printable_word(cls, given: str) -> str:
        given = given.strip()
        if not given.isascii() or not given.isprintable() or " " in given:
            raise ValueError("the key contains invalid characters; was it copied completely?")
        return given

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        engine = ENGINES[self.engine]
        if engine.key_header is not None and not self.key:
            raise ValueError(f"{self.engine} needs a `key`")
        if not engine.url and not self.url:
            raise ValueError(f"{self.engine} needs the `url` of a server")
        return self


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A result of a search; each text is one line."""

    title: str
    url: str
    snippet: str


async def search(options: SearchOptions, user_agent: str, query: str, count: int) -> list[SearchHit]:
    """Return at most `count` results of the search engine. The caller limits the time.

    Raises:
        WebError: the engine cannot be reached, refuses the request, or its answer cannot be read.
    """
    name, engine = options.engine, ENGINES[options.engine]
    base = URL(options.url or engine.url)
    parameters: dict[str, Any] = {engine.query: query, **dict(engine.more)}
    if engine.count:
        parameters[engine.count] = count
    headers = {"User-Agent": user_agent, "Accept": "application/json"}
    if engine.key_header is not None:
        headers[engine.key_header[0]] = engine.key_header[1] + options.key
    sent: Any = {"json": parameters} if engine.is_post else {"params": parameters}
    try:
        async with (
            a_session(None, headers) as session,
            session.request(
                "POST" if engine.is_post else "GET", base / engine.path, allow_redirects=False, **sent
            ) as response,
        ):
            _check(name, response)
            body, is_cut = await read_body(response, _MAX_BYTES)
    except (aiohttp.ClientError, OSError) as e:
        raise WebError(f"The search engine ({name}) cannot be reached. Try again later.") from e
    try:
        found: Any = None if is_cut else parse_json(body)
        for each in engine.results:
            found = found[each]
        hits = [hit for item in found if (hit := _hit(item, engine, base)) is not None]
    except (ValueError, LookupError, TypeError) as e:
        raise WebError(f"The answer of the search engine ({name}) cannot be read. Check its address.") from e
    return hits[:count]


def _check(name: EngineName, response: aiohttp.ClientResponse) -> None:
    match response.status:
        case 401 | 403 if name == "searxng":
            raise WebError(
                "The search engine refuses the request. Allow `json` in `search.formats` of its settings.yml."
            )
        case 401 | 403:
            raise WebError(
                f"The search engine ({name}) refuses the request. Its `key` or `user_agent` must be corrected."
            )
        case 429:
            raise WebError(f"The search engine ({name}) asks for fewer requests. Try again {retry_time(response)}.")
        case 402 | 432 | 433:
            raise WebError(
                f"The plan for the search engine ({name}) is used up. Nothing can be searched until it is not."
            )
    check_status(response, f"The search engine ({name})")


def _hit(item: Any, engine: SearchEngine, base: URL) -> SearchHit | None:
    """Return a result; `None` if its address cannot be fetched."""
    if not isinstance(item, dict):
        raise TypeError("a result is no object")
    title, snippet = item.get("title"), item.get(engine.snippet)
    url = str(base / "wiki" / item["key"]) if engine is ENGINES["wikipedia"] else str(item.get("url"))
    if not url.startswith(("http://", "https://")) or len(url) > _MAX_URL_CHARS or len(url.split()) != 1:
        return None
    return SearchHit(_line(title, _MAX_TITLE_CHARS) or url, url, _line(snippet, _MAX_SNIPPET_CHARS))


def _line(value: Any, max_chars: int) -> str:
    """Return a text without tags, in one line."""
    if not isinstance(value, str):
        return ""
    text = " ".join(INVISIBLE.sub("", html.unescape(_TAG.sub("", value[: 10 * max_chars]))).split())
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def shown_hits(hits: list[SearchHit]) -> Iterator[str]:
    """Return a numbered line for each result, with its address and text in the next lines."""
    for number, hit in enumerate(hits, 1):
        yield f"{number}. {hit.title}"
        yield f"   {hit.url}"
        if hit.snippet:
            yield f"   {hit.snippet}"
