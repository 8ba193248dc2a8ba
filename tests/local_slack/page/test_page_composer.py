"""Focus, drafts and files of the page's composers."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.browser

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# Drops or pastes a file on the composer of the channel; `size` is in bytes.
TRANSFER = """({kind, name, size}) => {
    const data = new DataTransfer();
    data.items.add(new File([new ArrayBuffer(size)], name));
    const options = {bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data};
    const field = document.querySelector("[data-testid=composer]");
    field.dispatchEvent(kind === "drop" ? new DragEvent(kind, options) : new ClipboardEvent(kind, options));
}"""


async def test_after_a_reload_the_open_thread_has_the_focus_and_its_draft(ana, page, open_page):
    root = await ana.say("general", "who owns the budget?")
    await open_page(f"general/{root}")
    reply = page.get_by_test_id("thread-pane").get_by_test_id("composer")
    await expect(reply).to_be_focused()
    await reply.fill("Chloe, I th")
    await page.reload()
    await expect(reply).to_be_focused()
    await page.keyboard.type("ink")
    await expect(reply).to_have_value("Chloe, I think")
    await page.keyboard.press("Escape")
    await page.reload()
    await expect(page.get_by_test_id("channel-pane").get_by_test_id("composer")).to_be_focused()


async def test_files_are_sent_with_the_text_and_shown_with_a_preview(slack, ana, bot, page, open_page):
    root = await ana.say("general", "@alpha hello")
    await open_page(f"general/{root}")
    thread = page.get_by_test_id("thread-pane")
    async with page.expect_file_chooser() as choosing:
        await thread.get_by_test_id("attach").click()
    picture = {"name": "chart.png", "mimeType": "image/png", "buffer": PIXEL}
    notes = {"name": "notes.md", "mimeType": "text/markdown", "buffer": b"# Notes"}
    await (await choosing.value).set_files([picture, notes, {**notes, "name": "not this one.md"}])
    await thread.get_by_role("button", name="Remove not this one.md").press("Enter")
    await expect(thread.get_by_test_id("attachments").get_by_role("listitem")).to_have_count(2)
    await page.keyboard.type("@alpha two files")
    await page.keyboard.press("Enter")

    event = await bot.event(lambda event: event.get("subtype") == "file_share")
    assert (event["user"], event["thread_ts"], event["text"]) == ("U0ANA", root, "<@U0ALPHA> two files")
    assert [(file["name"], file["mimetype"], file["size"]) for file in event["files"]] == [
        ("chart.png", "image/png", len(PIXEL)),
        ("notes.md", "text/markdown", 7),
    ]
    shown = thread.get_by_test_id("file")
    await expect(shown).to_contain_text(["PNG · 70 bytes", "Markdown · 7 bytes"])
    assert await shown.first.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    await expect(thread.get_by_test_id("attachments")).to_be_hidden()


async def test_files_can_be_dropped_and_pasted_and_one_that_is_too_large_is_refused(slack, page, open_page):
    await open_page()
    pane = page.get_by_test_id("channel-pane")
    attached = pane.get_by_test_id("attachments").get_by_role("listitem")
    await page.evaluate(TRANSFER, {"kind": "drop", "name": "dropped.txt", "size": 3})
    await page.evaluate(TRANSFER, {"kind": "paste", "name": "pasted.txt", "size": 4})
    await expect(attached).to_contain_text(["dropped.txt3 bytes", "pasted.txt4 bytes"])
    for name, size, sentence in (
        ("film.bin", 100 * 1024**2 + 1, "film.bin has 100 MB: a file may have at most 100 MB here."),
        ("nothing.txt", 0, "nothing.txt is empty, or a folder: choose another file."),
    ):
        await page.evaluate(TRANSFER, {"kind": "drop", "name": name, "size": size})
        await expect(pane.get_by_role("alert")).to_have_text(sentence)

    slack.workspace.archive("general")
    await pane.get_by_test_id("send").click()
    await expect(pane.get_by_role("alert")).to_have_text("This channel is archived.")
    await expect(attached).to_have_count(2)
    slack.workspace.archive("general", archived=False)
    await pane.get_by_test_id("send").click()
    (message,) = await slack.until(lambda workspace: workspace.messages("general"))
    assert [(file.name, len(file.content)) for file in message.files] == [("dropped.txt", 3), ("pasted.txt", 4)]


@pytest.fixture
def failing(slack, page):
    """Let a call that posts in #general reach Slack when the block ends: the channel is archived by then."""

    @asynccontextmanager
    async def failing(method):
        left = asyncio.Event()

        async def send_late(route):
            await left.wait()
            await route.continue_()

        await page.route(f"**/api/{method}", send_late)
        async with page.expect_request(f"**/api/{method}"):
            yield
        slack.workspace.archive("general")
        left.set()

    return failing


async def test_a_message_that_fails_after_another_conversation_was_opened_is_a_draft_of_its_own(
    page, open_page, failing
):
    await open_page("general")
    composer = page.get_by_test_id("channel-pane").get_by_test_id("composer")
    alert = page.get_by_test_id("channel-pane").get_by_role("alert")
    attached = page.get_by_test_id("attachments").get_by_role("listitem")
    await page.evaluate(TRANSFER, {"kind": "drop", "name": "dropped.txt", "size": 3})
    await composer.fill("for all")
    async with failing("files.completeUploadExternal"):
        await composer.press("Enter")
        await page.get_by_test_id("channel-random").click()
        await composer.fill("by the way")
    await expect(alert).to_contain_text("was not sent")
    await expect(alert).to_contain_text("Attach its files again.")
    await expect(composer).to_have_value("by the way")
    await expect(attached).to_have_count(0)

    await page.get_by_test_id("channel-general").click()
    await expect(composer).to_have_value("for all")
    await expect(alert).to_have_count(0)
    await page.get_by_test_id("channel-random").click()
    await expect(composer).to_have_value("by the way")


async def test_a_reply_that_fails_after_its_thread_was_closed_is_a_draft_of_the_thread(ana, page, open_page, failing):
    root = await ana.say("general", "who owns the budget?")
    await open_page(f"general/{root}")
    reply = page.get_by_test_id("thread-pane").get_by_test_id("composer")
    await reply.fill("Chloe, I think")
    async with failing("chat.postMessage"):
        await reply.press("Enter")
        await page.get_by_test_id("close-thread").click()
    await expect(reply).to_have_value("Chloe, I think")
    await page.go_back()
    await expect(reply).to_be_visible()
    await expect(reply).to_have_value("Chloe, I think")
