"""Contrast, headings, lists and landmarks of the page, in both themes."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.browser

GENERAL = "C0GENERAL"
MARKDOWN = """### Findings
See [the notes](https://example.org), `code`, <@U0ANA> and <!here>

| Part | Count |
|:--|--:|
| store | 3 |

1. first
   - inside

```
code
```"""
BLOCKS = [
    {"type": "markdown", "text": MARKDOWN},
    {"type": "image", "image_url": "https://example.org/chart.png", "alt_text": "A chart"},
    {"type": "context", "elements": [{"type": "mrkdwn", "text": "took `3 s`"}]},
]
ALERT = {
    "title": "High latency",
    "title_link": "https://grafana.example",
    "fields": [{"title": "host", "value": "web-1", "short": True}],
    "footer": "Grafana",
}

TEXT = {"type": "plain_text", "text": "Text"}
OPTIONS = [{"text": TEXT, "value": "a", "description": TEXT}]
INPUTS = [
    {"type": "plain_text_input", "placeholder": TEXT},
    {"type": "static_select", "options": OPTIONS},
    {"type": "multi_users_select"},
    {"type": "radio_buttons", "options": OPTIONS},
    {"type": "checkboxes", "options": OPTIONS},
]
VIEW = {"blocks": [{"type": "input", "label": TEXT, "hint": TEXT, "element": each} for each in INPUTS]}

# Returns a sentence for each text with a contrast below 4.5, and for each list, heading or landmark that is wrong.
# A canvas blends the backgrounds. Of a gradient the first colour counts; pictures and emoji are not text.
AUDIT = r"""() => {
    const pen = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const paint = (colour, alpha = 1) => {
        pen.globalAlpha = alpha;
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
    };
    const luminance = () => {
        const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
        const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
        return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
    };
    const contrast = (element) => {
        const lineage = [];
        for (let each = element; each; each = each.parentElement) lineage.unshift(getComputedStyle(each));
        paint("#fff");
        for (const { backgroundColor, backgroundImage } of lineage)
            paint(backgroundImage.match(/(rgba?|color)\([^)]*\)/)?.[0] ?? backgroundColor);
        const behind = luminance();
        paint(lineage.at(-1).color, lineage.reduce((product, { opacity }) => product * opacity, 1));
        const text = luminance();
        return (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
    };
    const all = (selector) => [...document.querySelectorAll(selector)];
    const seen = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
    const isText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const isRead = (element) => isText(element) && seen(element) && !element.closest(".avatar, .emoji, .sr-only");
    const faint = all("main *, dialog *, .emoji-picker *").filter((each) => isRead(each) && contrast(each) < 4.5);
    const problems = faint.map((each) => `contrast ${contrast(each).toFixed(2)}: ${each.outerHTML}`);
    const items = all("ul, ol").flatMap((list) => [...list.children]);
    const wanted = (item) => (item.parentElement.role === "listbox" ? "option" : null);
    const isWrong = (item) => item.tagName !== "LI" || item.role !== wanted(item);
    problems.push(...items.filter(isWrong).map((item) => `item: ${item.outerHTML}`));
    let before = 0;
    for (const heading of all("h1, h2, h3, h4, [role=heading]").filter(seen)) {
        const level = Number(heading.ariaLevel ?? heading.tagName[1]);
        if (level > before + 1) problems.push(`heading after level ${before}: ${heading.outerHTML}`);
        before = level;
    }
    for (const tag of ["main", "h1"]) if (all(tag).filter(seen).length !== 1) problems.push(`not one ${tag}`);
    return [...problems, ...all("[role=img] :is(a, button)").map((each) => `in a picture: ${each.outerHTML}`)];
}"""


@pytest.fixture
def audit(page):
    async def audit():
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            assert await page.evaluate(AUDIT) == []

    return audit


async def test_texts_have_contrast_and_lists_and_headings_are_in_order(ana, client, slack, page, open_page, audit):  # noqa: PLR0917 - fixtures
    await page.set_viewport_size({"width": 1280, "height": 800})
    await open_page()
    await expect(page.get_by_test_id("offline-note")).to_be_visible()
    await audit()
    root = await ana.say("general", "<@U0ALPHA> and <@U0ANA>: look through the notes")
    await client.chat_postMessage(channel=GENERAL, text="for notifications", thread_ts=root, blocks=BLOCKS)
    await client.chat_postMessage(channel=GENERAL, text="an alert", attachments=[ALERT], thread_ts=root)
    await ana.forward(GENERAL, root, GENERAL, "see above")
    await client.chat_postEphemeral(channel=GENERAL, user="U0ANA", text="only for you")
    await client.files_upload_v2(channel=GENERAL, content="a page", filename="notes.html", thread_ts=root)
    await client.reactions_add(channel=GENERAL, timestamp=root, name="hourglass_flowing_sand")
    session = {"channel_id": GENERAL, "thread_ts": root, "status": "processing"}
    await client.api_call("agents.sessions.setStatus", json=session)
    await open_page(f"general/{root}")
    await expect(page.get_by_test_id("session-state")).to_be_visible()
    await expect(page.get_by_test_id("file")).to_be_visible()
    await page.get_by_test_id("composer").last.fill("see @a")
    await expect(page.get_by_test_id("autocomplete").last).to_be_visible()
    await audit()
    await page.get_by_test_id("message").last.hover()
    await page.get_by_test_id("share-message").last.click()
    await expect(page.get_by_test_id("share-dialog")).to_be_visible()
    await audit()
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+k")
    await audit()
    await page.get_by_test_id("quick-switcher-field").fill("nowhere")
    await audit()
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Insert emoji").last.click()
    await page.get_by_test_id("emoji-search").fill("nothing like it")
    await audit()
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+.")
    await page.get_by_test_id("call-fault-on").click()
    await expect(page.get_by_test_id("rate-chat.postMessage").first).to_be_visible()
    await audit()
    await page.keyboard.press("Escape")
    await page.set_viewport_size({"width": 400, "height": 800})
    await audit()
    slack.faults.clear()


async def test_a_modal_and_the_home_tab_are_readable(client, slack, page, open_page, audit):
    await open_page("@alpha")
    await page.get_by_test_id("tab-home").click()
    await audit()
    await client.views_publish(user_id="U0ANA", view={"type": "home", **VIEW})
    await expect(page.get_by_test_id("home").get_by_role("radio")).to_be_visible()
    await audit()
    trigger = slack.workspace.views.issue_trigger("U0ANA")
    await client.views_open(trigger_id=trigger, view={"type": "modal", "title": TEXT, "submit": TEXT, **VIEW})
    await page.get_by_test_id("modal-submit").click()
    await expect(page.get_by_text("this field is required").first).to_be_visible()
    await audit()
