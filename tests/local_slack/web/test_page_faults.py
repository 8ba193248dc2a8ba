"""The panel for faults and limits, and the switch between workspaces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect
from slack_sdk.errors import SlackApiError

from local_slack import LocalSlack

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

pytestmark = pytest.mark.browser


async def test_the_panel_switches_faults_on_and_shows_what_is_left_of_them_and_of_the_limits(
    slack: LocalSlack, client: AsyncWebClient, page: Page
) -> None:
    await client.chat_postMessage(channel="C0GENERAL", text="hello")
    await page.goto(slack.url)
    await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")
    await page.keyboard.press("Control+.")
    panel = page.get_by_test_id("fault-panel")
    on = panel.get_by_test_id("faults-on").get_by_role("listitem")
    await expect(panel).to_be_visible()
    await expect(panel.get_by_role("heading", name="Faults and limits")).to_be_focused()
    await expect(panel.get_by_test_id("rate-chat.postMessage").last).to_contain_text("1 / 300 a minute")

    await panel.get_by_test_id("call-fault-times").fill("2")
    await panel.get_by_test_id("fault-method").select_option("chat.update")
    await panel.get_by_test_id("argument-error").fill("cant_update_message")
    await panel.get_by_test_id("call-fault-on").click()
    await panel.get_by_test_id("delivery-fault-kind").select_option("late")
    await panel.get_by_test_id("argument-behind").fill("3")
    await panel.get_by_test_id("delivery-fault-on").click()
    await expect(on).to_have_text(
        [re.compile("chat.update.*refused: cant_update_message.*2"), re.compile("Events.*late, behind 3.*1")]
    )

    with pytest.raises(SlackApiError, match="cant_update_message"):
        await client.chat_update(channel="C0GENERAL", ts="1.1", text="never")
    await expect(on.first).to_have_text(re.compile("cant_update_message.*1"))
    await expect(panel.get_by_test_id("record")).to_have_attribute("href", "/record.jsonl")
    await panel.get_by_test_id("clear-faults").click()
    await expect(panel.get_by_text("No active faults.")).to_be_visible()
    assert slack.faults.pending("chat.update") == 0
    await page.keyboard.press("Escape")
    await expect(panel).to_be_hidden()


async def test_one_goes_from_one_workspace_to_the_other(page: Page) -> None:
    async with LocalSlack(teams=("Playground", "Second")) as slack:
        await slack.team("Second").as_person("ana").say("general", "only in the second")
        await page.goto(slack.url)
        await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")
        await page.get_by_test_id("team-switch").click()
        await page.get_by_test_id("team-option-Second").click()
        await expect(page).to_have_url(re.compile(r"\?team=T\w+#/ana/general"))
        await expect(page.get_by_text("only in the second")).to_be_visible()
        await page.get_by_test_id("composer").first.fill("so am I")
        await page.get_by_test_id("composer").first.press("Enter")
        await expect(page.get_by_text("so am I")).to_be_visible()
        assert len(slack.team("Second").workspace.messages("general")) == 2
        assert slack.workspace.messages("general") == ()
