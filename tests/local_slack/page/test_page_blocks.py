"""Blocks on the page: displayed, pressed, and never executed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.browser

Json = dict[str, Any]

GENERAL = "C0GENERAL"
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script> [go](javascript:alert(3)) <javascript:alert(4)|go>"
MARKDOWN = f"""## Findings
**Two** of _three_, see [the notes](https://example.org/notes), `a *star*` and <@U0ANA>

| Part | Count |
|:--|--:|
| store | 3 |

1. first
   - inside
2. second

```
**code**
```
{MARKUP}"""


def plain(text):
    return {"type": "plain_text", "text": text}


def button(action_id, text, **more):
    return {"type": "button", "action_id": action_id, "text": plain(text), **more}


def mrkdwn(text):
    return {"type": "mrkdwn", "text": text}


def section(text, **more):
    return {"type": "section", "text": mrkdwn(text), **more}


ALL = [
    {"type": "header", "text": plain("Deployment")},
    section(f"*Approval* {MARKUP}", fields=[mrkdwn("*Risk*\nlow")], accessory=button("details", "Details")),
    {"type": "divider"},
    {"type": "context", "elements": [mrkdwn("took `3 s`"), plain(MARKUP)]},
    {"type": "image", "image_url": "https://example.org/chart.png", "alt_text": "A chart of the latency"},
    {"type": "markdown", "text": MARKDOWN},
    {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_list",
                "style": "bullet",
                "elements": [
                    {
                        "type": "rich_text_section",
                        "elements": [{"type": "text", "text": MARKUP, "style": {"bold": True}}],
                    }
                ],
            }
        ],
    },
]


async def test_blocks_are_displayed_and_markup_in_them_is_escaped(slack, client, page):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    await client.chat_postMessage(channel=GENERAL, text="only for notifications", blocks=ALL)
    await page.goto(f"{slack.url}#/ana/general")
    shown = page.get_by_test_id("blocks")

    await expect(shown.get_by_role("heading", name="Deployment")).to_be_visible()
    await expect(shown.get_by_role("heading", name="Findings")).to_be_visible()
    await expect(shown.get_by_role("cell", name="3", exact=True)).to_have_css("text-align", "right")
    await expect(shown.locator("ol > li ul > li")).to_have_text("inside")
    await expect(shown.locator("pre")).to_have_text("**code**")
    await expect(shown.get_by_role("link", name="the notes")).to_have_attribute("href", "https://example.org/notes")
    await expect(shown.get_by_text("A chart of the latency")).to_be_visible()
    await expect(shown.get_by_text("only for notifications")).to_have_count(0)
    await expect(shown.get_by_text("<script>alert(2)</script>")).to_have_count(4)
    assert await shown.locator("script, img, [onerror], [href^='javascript']").count() == 0
    assert [url for url in requests if not url.startswith(slack.url)] == []

    texts = await page.evaluate(
        """async () => {
            const { BlocksView } = await import("/page/messages/blocks.js");
            const view = new BlocksView({ directory: { user: () => null } });
            view.update([{ type: "video" }, { type: "constructor" }, { type: "section", fields: 3 },
                { type: "actions", elements: [{ type: "datepicker" }] }]);
            return [...view.element.children].map((block) => block.textContent);
        }"""
    )
    assert texts == [
        "Unsupported block: video",
        "Unsupported block: constructor",
        "Invalid section block: Slack would refuse it",
        "Unsupported element: datepicker",
    ]


async def test_a_button_is_busy_until_the_app_answers_and_keeps_its_focus(slack, connect, page):
    bot = await connect(slack)
    pressed: asyncio.Queue[Json] = asyncio.Queue()
    answering = asyncio.Event()

    @bot.app.action("stop")
    async def on_stop(ack, action):
        pressed.put_nowait(action)
        await answering.wait()
        await ack()

    question = {"title": "Stop it?", "text": "The work so far stays.", "confirm": "Do stop", "deny": "Go on"}
    confirm = {name: plain(text) for name, text in question.items()}
    actions = {"type": "actions", "elements": [button("stop", "Stop", value="run-1", confirm=confirm)]}
    posted = await bot.client.chat_postMessage(channel=GENERAL, text="⚙️", blocks=[section("Reading"), actions])
    await page.goto(f"{slack.url}#/ana/general")
    stop = page.get_by_test_id("action-stop")
    await stop.focus()
    await bot.client.chat_update(channel=GENERAL, ts=posted["ts"], text="⚙️", blocks=[section("Writing"), actions])
    await expect(page.get_by_text("Writing")).to_be_visible()
    await expect(stop).to_be_focused()

    await stop.click()
    await page.get_by_test_id("confirm-action").click()
    async with asyncio.timeout(5):
        assert (await pressed.get())["value"] == "run-1"
    await expect(stop).to_have_attribute("aria-busy", "true")
    answering.set()
    await expect(stop).not_to_have_attribute("aria-busy", "true")

    slack.socket_mode.disconnect("link_disabled")
    await slack.until(lambda workspace: not workspace.bot_online)
    await stop.click()
    await page.get_by_test_id("confirm-action").click()
    await expect(page.get_by_text("The app is not connected.")).to_be_visible()


WIDE = f"""| Note | Owner | Due | Remark |
|:--|:--|--:|:--|
| roadmap.md | Ana Gray | 2024-06-30 | {"the date is before the date of the design " * 3} |

```
{"a line of code that is longer than the pane " * 4}
```
{"A long paragraph. " * 60}"""

# Returns in how many lines the text of an element is set.
LINES = """element => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return range.getClientRects().length;
}"""


async def test_a_wide_table_and_long_code_scroll_and_the_page_does_not(slack, client, page):
    blocks = [{"type": "markdown", "text": WIDE}]
    await client.chat_postMessage(channel=GENERAL, text="only for notifications", blocks=blocks)
    await page.goto(f"{slack.url}#/ana/general")
    table, code = page.get_by_role("region", name="Table"), page.locator(".blocks pre")
    for width in (1280, 400):
        await page.set_viewport_size({"width": width, "height": 800})
        for name in ("Ana Gray", "2024-06-30"):
            text = table.get_by_role("cell", name=name)
            assert await text.evaluate(LINES) == 1
        assert await page.evaluate("document.documentElement.scrollWidth") == width
    for wide in (table, code):
        assert await wide.evaluate("element => element.scrollWidth > element.clientWidth")
        await wide.focus()
        await expect(wide).to_be_focused()
