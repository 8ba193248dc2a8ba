"""Alerts of other apps, forwarded messages and code snippets on the page."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slack(apps=("alerts",))]

MARKUP = "<img src=x onerror=alert(1)>"
ALERT = {
    "color": "danger",
    "pretext": "New alert",
    "author_name": "Grafana",
    "title": f"High latency {MARKUP}",
    "title_link": "https://grafana.example/d/1",
    "text": f"p99 is *3 s* {MARKUP}",
    "fields": [{"title": "host", "value": "web-1", "short": True}, {"title": "since", "value": "3:27"}],
    "footer": "Grafana v11",
}


async def test_an_alert_of_another_app_is_shown_with_its_name_color_fields_and_links(slack, page, open_page):
    alerts = slack.as_app("alerts")
    await alerts.post("general", attachments=[ALERT, {"color": "javascript:x", "text": 7, "fields": "x", "title": []}])
    await alerts.post("general", "deployed", username="CI")
    await open_page("general")
    message = page.get_by_test_id("message").first
    first, second = (page.get_by_test_id("attachment").nth(number) for number in (0, 1))
    await expect(message.locator(".heading")).to_contain_text("AlertsAPP")
    await expect(message.get_by_test_id("message-text")).to_have_text("")
    await expect(message).to_contain_text("New alert")
    await expect(first.locator(".attachment-title a")).to_have_attribute("href", "https://grafana.example/d/1")
    await expect(first.locator("strong", has_text="3 s")).to_be_visible()
    await expect(first.locator(".fields > div")).to_have_text(["hostweb-1", "since3:27"])
    assert await first.evaluate("each => getComputedStyle(each).getPropertyValue('--bar')") == "#e01e5a"
    assert await second.evaluate("each => getComputedStyle(each).getPropertyValue('--bar')") == ""
    assert await page.locator(".message-attachments").locator("img, [onerror]").count() == 0
    await expect(page.get_by_test_id("message").nth(1).locator(".heading")).to_contain_text("CIAPP")


async def test_a_message_is_shared_with_a_comment_and_without_one(slack, bot, page, open_page):
    alert = await slack.as_app("alerts").post("general", attachments=[ALERT])
    await open_page("general")
    dialog, share = page.get_by_test_id("share-dialog"), page.get_by_test_id("share-message")
    await page.get_by_test_id("message").first.hover()
    await share.first.click()
    await expect(page.get_by_test_id("share-comment")).to_be_focused()
    await page.get_by_test_id("share-place").select_option(label="#random")
    await page.get_by_test_id("share-comment").fill("@alpha what now?")
    await dialog.get_by_role("button", name="Share").click()
    await expect(dialog).to_have_count(0)
    event = await bot.event(lambda each: each["type"] == "app_mention")
    (shared,) = event["attachments"]
    assert (event["text"], event["channel"]) == ("<@U0ALPHA> what now?", "C0RANDOM")
    assert (shared["is_share"], shared["author_name"], shared["ts"]) == (True, "Alerts", alert)

    await open_page("random")
    forward = page.get_by_test_id("forward")
    await expect(forward).to_contain_text("Alerts")
    await expect(forward).to_contain_text("High latency")
    await expect(forward).to_contain_text("Posted in #general")
    await page.get_by_test_id("message").first.hover()
    await page.get_by_test_id("open-thread").first.click()
    thread = page.get_by_test_id("thread-pane")
    await thread.get_by_test_id("message").first.hover()
    await thread.get_by_test_id("share-message").click()
    await page.get_by_test_id("share-comment").press("Enter")
    await expect(thread.get_by_test_id("message")).to_have_count(2)
    reply = slack.workspace.messages("random")[1]
    assert (reply.text, reply.thread_ts) == ("", event["ts"])


async def test_a_code_file_is_a_snippet_with_its_first_lines(slack, page, open_page):
    await open_page("general")
    code = "\n".join(f"print({number})  # {MARKUP}" for number in range(30))
    await page.get_by_test_id("file-input").first.set_input_files(
        {"name": "a.py", "mimeType": "text/x-python", "buffer": code.encode()}
    )
    await page.get_by_test_id("send").first.click()
    snippet = page.get_by_test_id("snippet")
    await expect(snippet.locator("pre")).to_contain_text("print(9)")
    await expect(snippet.locator("pre")).not_to_contain_text("print(10)")
    await expect(snippet.get_by_test_id("file")).to_contain_text("a.py")


async def test_forwards_and_attachments_have_the_markup_of_messages(slack, page, open_page):
    quote = {"type": "section", "text": {"type": "mrkdwn", "text": "*Mended*\n>by <@U0BEN>"}}
    await slack.as_app("alerts").post("random", attachments=[{"blocks": [quote]}])
    said = await slack.as_person("ben").say("general", "seen *twice*, since `9:00`")
    await slack.as_person("ben").forward("general", said, "random")
    await open_page("random")
    await expect(page.get_by_test_id("attachment").locator("blockquote")).to_have_css("border-left-style", "solid")
    forward = page.get_by_test_id("forward")
    await expect(forward.locator("strong")).to_have_text("twice")
    await expect(forward.locator("code")).to_have_css("border-top-style", "solid")
