"""Export of a conversation as an HTML page without scripts or external resources."""

from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from chromium import connected_to
from fault_injecting_store import FaultInjectingStore
from hypothesis import given, settings
from hypothesis import strategies as st
from interaction_states import brought, called, conversations, said, valid
from playwright.async_api import Browser, expect

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.export import as_page
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    FinishedState,
    ToolResultState,
    UserMessageState,
    WaitingState,
)
from orchestrator_interactive.loop.injection_queue import Injection, Talk, injection_row, talk_row
from orchestrator_interactive.transcript.framing import Author, message_text
from orchestrator_interactive.transcript.rows import user_row

HOSTILE = [
    "<script>document.title = 'taken'</script>",
    "</pre></div></section><h1>Not a heading</h1>",
    "<img src=x onerror=\"document.title='taken'\">",
    '"><a href="javascript:alert(1)">',
    "'\"`&lt;{{ 7 * 7 }}{% raw %}",
    "</style><style>body{display:none}",
    "<!-- ]]> -->\x00\x1b[2J\u202e\ud800\r",
]
PLAIN_ATTRIBUTES = {"alt", "class", "datetime", "dir", "href", "id", "lang", "open", "src", "start", "style", "title"}
OF_META = {"charset", "content", "http-equiv", "name"}
BRIGHTNESS = r"""
name => getComputedStyle(document.body)[name].match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)
"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def image(**source: str) -> dict[str, Any]:
    return {"type": "image", "source": source}


async def page_of(stack: InteractionStack, store: FaultInjectingStore, branch: str | None = None) -> str:
    return "".join([piece async for piece in as_page(store, stack.key, branch)])


class Outline(HTMLParser):
    """A strict parser: tags are closed in order, and no attribute is repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: dict[str, list[str]] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names)
        self.tags.add(tag)
        self.text += "" if tag in ("bdi", "b", "a", "span", "time") else "\n"
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] != ["style"] else ""


def outline(page: str) -> Outline:
    read = Outline()
    read.feed(page)
    read.close()
    assert read.open == []
    return read


hostile_states = st.sampled_from(HOSTILE).flatmap(
    lambda text: st.sampled_from(
        [
            UserMessageState([{"type": "text", "text": text}, image(type="url", url=text), {"type": text}]),
            UserMessageState(f"```{text}\n{text}\n```", meta={"injections": [text]}),
            AssistantMessageState([{"type": "thinking", "thinking": text}], meta=text),
            AssistantMessageState(text, [{"id": text, "name": text, "arguments": text}]),
            called(text, text, **{text: text}),
            ToolResultState(text, text, text),
            AgentCallState(text, text, text),
            AgentResultState(text, [text]),
            WaitingState("tool", 1e300, text),
        ]
    )
)


@settings(max_examples=30, deadline=None)
@given(states=conversations, hostile=st.lists(hostile_states, max_size=6), lost=st.sets(st.integers(0, 9), max_size=2))
async def test_a_page_of_any_content_is_valid_and_inert(states, hostile, lost) -> None:
    store = FaultInjectingStore(lost)
    stack = InteractionStack(store, HOSTILE[0], HOSTILE[1])
    await stack.push(*valid([said(HOSTILE[2]), *hostile, *states]))
    await stack.fork(name=HOSTILE[3])
    page = await page_of(stack, store)
    page.encode()
    read = outline(page)
    assert read.tags.isdisjoint({"script", "iframe", "object", "embed", "form", "link", "base"})
    assert set(read.attributes) <= PLAIN_ATTRIBUTES | OF_META
    assert all(link.startswith(("#s", "https://", "http://", "mailto:")) for link in read.attributes["href"])
    assert all(source.startswith("data:image/") for source in read.attributes.get("src", ()))
    ids = read.attributes.get("id", [])
    assert len(ids) == len(set(ids))
    assert HOSTILE[0] in read.text
    assert HOSTILE[3] in read.text


async def test_a_page_has_the_content_of_every_state() -> None:
    store = FaultInjectingStore({9})
    stack = InteractionStack(store, "T1:C1:1.0", "alpha", asked_by="c/other/0/3")
    blocks = [
        {"type": "thinking", "thinking": "Where is it?", "signature": "s"},
        {"type": "redacted_thinking", "data": "…"},
        {"type": "text", "text": "Here:\n```python\nx = 1\n```\nSee?"},
    ]
    await stack.push(
        UserMessageState([{"type": "text", "text": "Look"}, image(type="base64", media_type="image/png", data=PIXEL)]),
        AssistantMessageState(blocks, meta={"usage": {"input_tokens": 1200, "output_tokens": 8}}),
        called("a", at="roof"),
        ToolResultState("a", "look", "wet", reward=0.8, meta={"is_error": True}),
        called("b"),
        brought("b", [image(type="url", url="https://example.com/a.png")]),
        UserMessageState("late", meta={"results": ["x"]}),
        called("d"),
        WaitingState("tool", 1_700_000_000.0, "d"),
        said("gone"),
        FinishedState(),
    )
    page = await page_of(stack, store)
    text = " ".join(outline(page).text.split())
    for expected in (
        "Agent alpha · branch main · 11 states · times in",
        "It answers the request c/other/0/3.",
        "Task 1",
        "Another agent asked by c/other/0/3",
        "Agent tokens: 1,200 in, 8 out",
        "Thinking Where is it?",
        "Thinking that the provider does not disclose.",
        "Here: x = 1 See?",
        'look { "at": "roof" } failed reward 0.8',
        "look {} done",
        "[image at https://example.com/a.png, which this page does not load]",
        "Late result",
        "look {} no result",
        "No result was recorded: its outcome is unknown.",
        "Waiting for a tool (d) until 2023-11-1",
        "Damaged: The state is damaged or missing",
        "Finished",
    ):
        assert expected in text
    assert '<pre><code class="language-python">x = 1\n</code></pre>' in page
    assert f'src="data:image/png;base64,{PIXEL}"' in page
    assert '<details class="thinking"><summary>Thinking</summary>' in page


async def test_a_page_is_titled_by_its_first_message_and_names_the_authors() -> None:
    ana, ben = Author("U0ANA", "Ana Gray"), Author("U0BEN", "Ben")
    asked = message_text(f"look at @Ben (U0BEN): is this\n{'so ' * 50}", ana, ["a.md"])
    meanwhile = injection_row([Injection("no\n- Eve (U0EVE): yes", "m2", ben), Injection("and me", "m3", ana)])
    row = UserMessageState(meanwhile["content"], meta=meanwhile["metadata"])
    plain = UserMessageState(message_text("Note (x1): a row without an author"))
    store = FaultInjectingStore()
    stack = InteractionStack(store, "T1:C1:1.0", "alpha")
    await stack.push(UserMessageState(asked, meta={"message": "m1"}), AssistantMessageState("Yes"), row, plain)
    text = " ".join(outline(await page_of(stack, store)).text.split())
    assert text.startswith("look at @Ben: is this so so")
    assert "Conversation T1:C1:1.0 look at @Ben: is this" in text
    assert "Ana Gray with files a.md" in text
    assert "Ben, Ana Gray while the agent was at work" in text
    assert "Ben: no - Eve (U0EVE): yes" in text
    assert "Ana Gray: and me" in text
    assert "Person" in text
    assert "Note (x1): a row without an author" in text
    assert not [each for each in ("U0ANA", "U0BEN") if each in text]


async def test_talk_is_a_note_with_its_authors_and_times() -> None:
    items = [("m1", message_text("lunch?", Author("U0BEN", "Ben", "Europe/Berlin"), ["a.md"], 0.0))]
    rows = [talk_row(Talk(tuple(items), 3)), user_row("go", "m2")]
    store = FaultInjectingStore()
    stack = InteractionStack(store, "T1:C1:1.0", "alpha")
    await stack.push(*(UserMessageState(row["content"], meta=row["metadata"]) for row in rows))
    text = " ".join(outline(await page_of(stack, store)).text.split())
    assert text.startswith("go")
    assert "Talk in the thread with files a.md" in text
    assert "Ben, 1970-01-01 01:00 Europe/Berlin (not to the agent): lunch?" in text


async def test_markdown_of_the_agent_is_rendered() -> None:
    store = FaultInjectingStore()
    stack = InteractionStack(store, "c", "a")
    markdown = (
        "# Plan\n\n- *one*\n- `two`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[here](https://example.com), "
        "[not there](javascript:alert(1)), ![no picture](https://example.com/a.png) <b>no tag</b>"
    )
    await stack.push(said("*as it is*"), AssistantMessageState(markdown))
    page = await page_of(stack, store)
    for made in (
        "<h1>Plan</h1>",
        "<li><em>one</em></li>",
        "<code>two</code>",
        "<td>1</td>",
        'href="https://example.com"',
    ):
        assert made in page
    read = outline(page)
    assert "*as it is*" in read.text
    assert "[not there](javascript:alert(1))" in read.text
    assert "<b>no tag</b>" in read.text
    assert "src" not in read.attributes


async def test_a_page_lists_the_branches_and_shows_one() -> None:
    store = FaultInjectingStore()
    stack = InteractionStack(store, "c", "a")
    await stack.push(said("Hi"), said("there"))
    assert "branches" not in outline(await page_of(stack, store)).text
    await stack.fork(0, "idea")
    text = " ".join(outline(await page_of(stack, store, "idea")).text.split())
    assert "branch idea · 1 state ·" in text
    assert "2 branches main current 2 states, last written" in text
    assert "idea this page 1 state, last written" in text
    assert "forked from main with 1 state" in text
    assert "there" not in text.replace("every state", "").split("Task 1")[1]


@pytest.fixture
async def browser(chromium_address: str) -> AsyncIterator[Browser]:
    async with connected_to(chromium_address) as browser:
        yield browser


@pytest.mark.browser
async def test_a_page_in_a_browser_loads_and_runs_nothing_and_fits(browser: Browser, tmp_path: Path) -> None:
    store = FaultInjectingStore()
    stack = InteractionStack(store, "c" * 90, "a")
    await stack.push(*(said(text) for text in HOSTILE), AssistantMessageState("long" * 200))
    await stack.push(called("call" * 40, "tool" * 40, at="x" * 400), WaitingState("tool", None, "call" * 40))
    file = tmp_path / "page.html"
    file.write_text(await page_of(stack, store), encoding="utf-8")
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda said: complaints.append(said.text))
    await page.goto(file.as_uri())
    await expect(page).to_have_title(HOSTILE[0])
    await expect(page.get_by_text(HOSTILE[1])).to_be_visible()
    call = page.locator("details.call")
    await call.locator("summary").click()
    await expect(call.get_by_text("No result was recorded")).to_be_visible()
    for width in (1280, 400):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") == width
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        ink, ground = [await page.evaluate(BRIGHTNESS, name) for name in ("color", "backgroundColor")]
        assert (ink > ground) == (scheme == "dark")
    assert (asked, complaints) == ([file.as_uri()], [])
