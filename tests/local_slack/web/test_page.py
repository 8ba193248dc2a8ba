"""The page in a real browser, with a bot whose every step the test takes itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Locator, Page, expect

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

    from local_slack import LocalSlack

pytestmark = pytest.mark.browser

HOURGLASS = "hourglass_flowing_sand"
PERSONA = {"username": "Alpha · Researcher", "icon_emoji": ":mag:"}
LONG = "every word of this line matters to whoever reads it, and the next one is no shorter than this"


async def sit_down(page: Page, slack: LocalSlack, place: str) -> None:
    await page.goto(f"{slack.url}#/ana/{place}")
    await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")


async def post(client: AsyncWebClient, channel: str, text: str, thread: str | None = None, **persona: str) -> str:
    return str((await client.chat_postMessage(channel=channel, text=text, thread_ts=thread, **persona))["ts"])


async def until_crossed(slack: LocalSlack, channel: str, ts: str) -> list[str]:
    """Wait until this message has an ❌; returns all that have one."""
    await slack.until(lambda workspace: workspace.message(channel, ts).reacted("x"))
    return [message.ts for message in slack.workspace.messages(channel) if message.reacted("x")]


async def test_a_direct_message_shows_that_the_bot_works_and_its_stop_crosses_the_status(
    slack: LocalSlack, client: AsyncWebClient, page: Page
) -> None:
    dm = await slack.as_person("ana").open_dm("alpha")
    await sit_down(page, slack, "@alpha")
    pane = page.get_by_test_id("channel-pane")
    stop = pane.get_by_test_id("stop-run")
    await expect(pane.get_by_text("A status message here")).to_be_visible()

    asked = await slack.as_person("ana").say(dm, "look through the notes")
    await client.reactions_add(channel=dm, timestamp=asked, name=HOURGLASS)
    await post(client, dm, "🛑 Stopped by Ana.")
    status = await post(client, dm, "⚙️ Thinking…")
    await post(client, dm, "⚙️ is what I call a gear", **PERSONA)
    await expect(pane.get_by_text("Alpha is working.")).to_be_visible()
    await expect(pane.locator(".at-work")).to_have_attribute("data-ts", status)
    await stop.click()
    assert await until_crossed(slack, dm, status) == [status]
    await expect(stop).to_contain_text("Stop now")

    await client.chat_delete(channel=dm, ts=status)
    await client.reactions_remove(channel=dm, timestamp=asked, name=HOURGLASS)
    await expect(stop).to_be_hidden()


async def test_stop_in_a_thread_hits_the_status_of_this_run_and_no_older_notice(
    slack: LocalSlack, client: AsyncWebClient, page: Page
) -> None:
    general = slack.channel("general").id
    ana = slack.as_person("ana")
    root = await ana.say("general", "@alpha look through the notes")
    left_behind = await post(client, general, "⚙️ Thinking…", root)
    await post(client, general, "🛑 Stopped by Ben.", root)
    again = await ana.say("general", "then only the roadmap", thread=root)
    await client.reactions_add(channel=general, timestamp=again, name=HOURGLASS)
    await sit_down(page, slack, f"general/{root}")
    stop = page.get_by_test_id("thread-pane").get_by_test_id("stop-run")

    await stop.click()
    assert await until_crossed(slack, general, again) == [again], "there is no status yet"
    status = await post(client, general, ":gear: Thinking…", root)
    await post(client, general, "⚠️ I cannot take that in.", root)
    await expect(page.locator(f".at-work[data-ts='{status}']")).to_be_visible()
    await stop.click()
    assert left_behind not in await until_crossed(slack, general, status)


async def test_a_thread_in_a_direct_message_does_not_claim_the_conversations_run(
    slack: LocalSlack, client: AsyncWebClient, page: Page
) -> None:
    asked = await slack.as_person("ana").dm("alpha", "look through the notes")
    dm = await slack.as_person("ana").open_dm("alpha")
    await client.reactions_add(channel=dm, timestamp=asked, name=HOURGLASS)
    await sit_down(page, slack, f"@alpha/{asked}")
    await expect(page.get_by_test_id("channel-pane").get_by_test_id("stop-run")).to_be_visible()
    await expect(page.get_by_test_id("thread-pane").get_by_test_id("run-bar")).to_contain_text("While Alpha works")


async def test_the_thread_stays_open_for_another_person_where_they_may_see_it(slack: LocalSlack, page: Page) -> None:
    ana = slack.as_person("ana")
    root = await ana.say("general", "who owns the budget?")
    await ana.say("general", "Chloe, I think", thread=root)
    await sit_down(page, slack, f"general/{root}")
    thread = page.get_by_test_id("thread-pane")
    await become(page, "ben")
    await expect(thread.get_by_text("Chloe, I think")).to_be_visible()
    await thread.get_by_test_id("composer").fill("She does")
    await thread.get_by_test_id("composer").press("Enter")
    reply = await slack.until(lambda workspace: workspace.thread("general", root)[2:])
    assert (reply[0].user, reply[0].text) == ("U0BEN", "She does")

    private = await ana.dm("alpha", "between us")
    await sit_down(page, slack, f"@alpha/{private}")
    await expect(thread).to_contain_text("between us")
    await become(page, "ben")
    await expect(thread).to_be_hidden()


async def test_the_toolbar_covers_neither_its_line_nor_the_line_above(slack: LocalSlack, page: Page) -> None:
    ana = slack.as_person("ana")
    root = await ana.say("general", LONG)
    for text in (LONG, f"{LONG}\n{LONG}\nin short", "no"):
        await ana.say("general", text, thread=root)
    await sit_down(page, slack, f"general/{root}")
    messages = page.get_by_test_id("thread-pane").get_by_test_id("message")
    await expect(messages).to_have_count(4)
    for number in range(4):
        await messages.nth(number).hover()
        assert await covered(messages.nth(number)) == []


async def test_both_answers_to_a_deletion_stand_in_one_row(slack: LocalSlack, page: Page) -> None:
    root = await slack.as_person("ana").say("general", "a message that nobody needs")
    await sit_down(page, slack, f"general/{root}")
    message = page.get_by_test_id("thread-pane").get_by_test_id("message")
    await message.hover()
    await message.get_by_test_id("delete-message").click()
    drop = await message.get_by_test_id("confirm-delete").bounding_box()
    keep = await message.get_by_role("button", name="Cancel").bounding_box()
    assert drop
    assert keep
    assert drop["y"] == keep["y"]


async def become(page: Page, name: str) -> None:
    await page.get_by_test_id("person-switch").click()
    await page.get_by_test_id(f"person-option-{name}").click()
    await expect(page).to_have_url(re.compile(f"#/{name}/"))
    await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")


async def covered(message: Locator) -> list[str]:
    """Return the texts of the pane that lie under the message's toolbar."""
    return await message.evaluate(
        """message => {
            const bar = message.querySelector(".toolbar").getBoundingClientRect();
            const range = document.createRange();
            const under = [];
            for (const text of message.parentElement.querySelectorAll(".text, .heading")) {
                const nodes = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
                while (nodes.nextNode()) {
                    range.selectNodeContents(nodes.currentNode);
                    for (const line of range.getClientRects()) {
                        const above = line.bottom <= bar.top, below = line.top >= bar.bottom;
                        const beside = line.right <= bar.left || line.left >= bar.right;
                        if (!above && !below && !beside) under.push(nodes.currentNode.data);
                    }
                }
            }
            return bar.width ? under : ["no toolbar"];
        }"""
    )
