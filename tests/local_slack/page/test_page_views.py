"""Modals, the Home tab, commands, shortcuts and ephemeral messages on the page."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from local_slack import Shortcut

SHORTCUTS = (Shortcut("ask", "Ask Alpha about this"), Shortcut("new", "New task", "global"))
pytestmark = [pytest.mark.browser, pytest.mark.slack(commands=("/agent", "/deploy"), shortcuts=SHORTCUTS)]

MARKUP = "<img src=x onerror=alert(1)><b>bold</b>"


def plain(text):
    return {"type": "plain_text", "text": text}


def option(value, text=None, **more):
    return {"text": plain(text or value), "value": value, **more}


def button(action_id, text, **more):
    return {"type": "button", "action_id": action_id, "text": plain(text), **more}


def field(block_id, label, element, **more):
    return {"type": "input", "block_id": block_id, "label": plain(label), "element": element, **more}


AGENTS = [option("alpha", "Alpha"), option("beta", f"Beta {MARKUP}")]
MODAL = {
    "type": "modal",
    "callback_id": "ask",
    "private_metadata": "m-1",
    "notify_on_close": True,
    "title": plain("Ask about this <b>"),
    "submit": plain("Ask"),
    "close": plain("Not now"),
    "blocks": [
        {"type": "section", "text": {"type": "mrkdwn", "text": "The answer comes *in the thread*."}},
        field("what", "Question", {"type": "plain_text_input", "action_id": "what", "placeholder": plain("Why …")}),
        field(
            "more",
            "Background",
            {"type": "plain_text_input", "action_id": "more", "multiline": True, "max_length": 20},
            optional=True,
            hint=plain("Only the agent reads it."),
        ),
        field("who", "Agent", {"type": "static_select", "action_id": "who", "options": AGENTS}),
        field("with", "Tell", {"type": "multi_users_select", "action_id": "with"}, optional=True),
        field(
            "how",
            "Length",
            {
                "type": "radio_buttons",
                "action_id": "how",
                "options": [option("short", "Short", description=plain("a sentence")), option("long", "Long")],
                "initial_option": option("short", "Short", description=plain("a sentence")),
            },
        ),
        field("use", "Tools", {"type": "checkboxes", "action_id": "use", "options": [option("web"), option("files")]}),
    ],
}
HOME = {
    "type": "home",
    "blocks": [
        {"type": "header", "text": plain("Your runs")},
        {
            "type": "section",
            "text": {"type": "mrkdwn", "text": "*Look through the notes* in <#C0GENERAL>\nsince 10:30"},
            "accessory": button("stop", "Stop", style="danger", value="run-1"),
        },
        {"type": "divider"},
        {
            "type": "actions",
            "block_id": "settings",
            "elements": [
                {"type": "static_select", "action_id": "agent", "placeholder": plain("Agent"), "options": AGENTS},
                {"type": "multi_static_select", "action_id": "tools", "options": [option("web"), option("files")]},
                {"type": "users_select", "action_id": "owner", "placeholder": plain("Owner")},
                button(
                    "more",
                    "More",
                    confirm={
                        "title": plain(MARKUP),
                        "text": plain(MARKUP),
                        "confirm": plain("Do"),
                        "deny": plain("No"),
                    },
                ),
            ],
        },
    ],
}


async def screenshot(page, name):
    if folder := os.environ.get("SCREENSHOTS"):
        await page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")


@pytest.fixture
def received(bot):
    """Acknowledge everything that is no event; give the payloads, answer with what is put into ``answers``."""
    payloads: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    answers: list[dict[str, Any]] = []

    async def take(ack, body):
        payloads.put_nowait(body)
        await ack(**(answers.pop(0) if answers else {}))

    for listen in (bot.app.action, bot.app.view, bot.app.view_closed, bot.app.shortcut, bot.app.command):
        for name in ("ask", "new", "stop", "agent", "tools", "owner", "more", "go", "pick", "/agent"):
            listen(name)(take)

    async def payload():
        async with asyncio.timeout(5):
            return await payloads.get()

    payload.answers = answers
    return payload


@pytest.fixture
def modal(slack, bot, page):
    async def open_modal(**fields):
        trigger = slack.workspace.views.issue_trigger("U0ANA")
        view = (await bot.client.views_open(trigger_id=trigger, view={**MODAL, **fields}))["view"]
        await expect(page.get_by_test_id("modal")).to_be_visible()
        return view["id"]

    return open_modal


async def test_a_modal_is_filled_in_and_submitted(bot, page, open_page, modal, received):
    await open_page("general")
    view_id = await modal()
    dialog = page.get_by_test_id("modal")
    await expect(dialog.get_by_role("heading", name="Ask about this <b>")).to_be_visible()
    await expect(dialog.get_by_label("Question")).to_be_focused()
    await page.keyboard.type("Why is it red?")
    await dialog.get_by_label("Background").fill("x" * 30)
    await expect(dialog.get_by_label("Background")).to_have_value("x" * 20)
    await dialog.get_by_label("Agent").select_option(f"Beta {MARKUP}")
    await dialog.get_by_test_id("action-with").locator("summary").click()
    await dialog.get_by_label("Ben").check()
    await expect(dialog.get_by_test_id("action-with").locator("summary")).to_have_text("Ben")
    await page.keyboard.press("Escape")
    await expect(dialog.get_by_label("Ben")).to_be_hidden()
    await dialog.get_by_label("Long").check()
    await dialog.get_by_label("files").check()
    await screenshot(page, "modal")
    changed = {
        **MODAL,
        "blocks": [field("what", "Another question", MODAL["blocks"][1]["element"]), *MODAL["blocks"][2:]],
    }
    await bot.client.views_update(view_id=view_id, view=changed)
    await expect(dialog.get_by_label("Another question")).to_have_value("Why is it red?")
    await dialog.get_by_test_id("modal-submit").click()
    await expect(dialog).to_be_hidden()
    view = (await received())["view"]
    values = {name: value for block in view["state"]["values"].values() for name, value in block.items()}
    assert (values["what"]["value"], values["more"]["value"]) == ("Why is it red?", "x" * 20)
    assert values["who"]["selected_option"] == AGENTS[1]
    assert values["with"]["selected_users"] == ["U0BEN"]
    assert values["how"]["selected_option"]["value"] == "long"
    assert [each["value"] for each in values["use"]["selected_options"]] == ["files"]
    assert view["private_metadata"] == "m-1"


async def test_errors_are_shown_under_the_fields_and_answers_replace_or_stack_the_modal(
    ana, page, open_page, modal, received
):
    blocks = [field(name, name.title(), {"type": "plain_text_input", "action_id": name}) for name in ("what", "why")]
    await open_page("general")
    await modal(blocks=blocks)
    dialog, submit = page.get_by_test_id("modal"), page.get_by_test_id("modal-submit")
    await submit.click()
    await expect(dialog.get_by_text("this field is required")).to_have_count(2)
    for name in ("What", "Why"):
        await dialog.get_by_label(name).fill(name)
    received.answers.append({"response_action": "errors", "errors": {"why": f"Not {MARKUP}"}})
    await submit.click()
    await expect(dialog.get_by_role("alert").get_by_text(f"Not {MARKUP}")).to_be_visible()
    await screenshot(page, "modal-errors")
    second, third = ({**MODAL, "title": plain(name), "blocks": []} for name in ("Second", "Third"))
    received.answers += [{"response_action": "update", "view": {**second, "blocks": blocks[:1]}}]
    await submit.click()
    await expect(dialog.get_by_role("heading", name="Second")).to_be_visible()
    received.answers += [{"response_action": "push", "view": third}]
    await dialog.get_by_label("What").fill("again")
    await submit.click()
    await expect(dialog.get_by_role("heading", name="Third")).to_be_visible()
    await dialog.get_by_role("button", name="Not now").click()
    await expect(dialog.get_by_role("heading", name="Second")).to_be_visible()
    await page.get_by_test_id("modal-clear").click()
    await expect(dialog).to_be_hidden()
    assert ana.modal is None
    kinds = [(await received())["type"] for _ in range(5)]
    assert kinds == ["view_submission"] * 3 + ["view_closed"] * 2


async def test_a_select_with_long_options_fits_a_narrow_window(page, open_page, modal):
    agents = [option("alpha", "the agent that looks through the notes and the roadmap")]
    await page.set_viewport_size({"width": 400, "height": 800})
    await open_page("general")
    await modal(blocks=[field("who", "Agent", {"type": "static_select", "action_id": "who", "options": agents})])
    body = page.get_by_test_id("modal").locator(".modal-body")
    assert await body.evaluate("body => body.scrollWidth - body.clientWidth") == 0


async def test_a_modal_is_for_one_person_survives_a_reload_and_is_closed_by_escape(page, open_page, modal, received):
    await open_page("general")
    await modal()
    await page.reload()
    dialog = page.get_by_test_id("modal")
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    assert (await received())["type"] == "view_closed"
    await modal()
    await page.goto(page.url.replace("/ana/", "/ben/"))
    await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")
    await expect(page.get_by_test_id("person-switch")).to_contain_text("Ben")
    await expect(dialog).to_be_hidden()


async def test_the_home_tab_shows_what_the_app_publishes(bot, page, open_page, received):
    await open_page("@alpha")
    home = page.get_by_test_id("home")
    await expect(home).to_be_hidden()
    await page.get_by_test_id("tab-home").click()
    await expect(home).to_contain_text("has not published")
    assert (await bot.event(lambda event: event.get("tab") == "home"))["user"] == "U0ANA"
    await bot.client.views_publish(user_id="U0ANA", view=HOME)
    await expect(home.get_by_role("heading", name="Your runs")).to_be_visible()
    await screenshot(page, "home")

    await home.get_by_test_id("action-stop").click()
    payload = await received()
    assert payload["container"] == {"type": "view", "view_id": payload["view"]["id"]}
    assert payload["actions"][0]["value"] == "run-1"
    await home.get_by_test_id("action-agent").select_option("beta")
    assert (await received())["actions"][0]["selected_option"] == AGENTS[1]
    await home.get_by_test_id("action-owner").select_option("U0CHLOE")
    payload = await received()
    assert payload["actions"][0]["selected_user"] == "U0CHLOE"
    assert payload["view"]["state"]["values"]["settings"]["agent"]["selected_option"] == AGENTS[1]
    await home.get_by_test_id("action-tools").locator("summary").click()
    await home.get_by_label("web").check()
    assert [each["value"] for each in (await received())["actions"][0]["selected_options"]] == ["web"]
    await home.get_by_test_id("action-more").click()
    await expect(page.get_by_role("heading", name=MARKUP)).to_be_visible()
    assert await page.locator("[onerror]").count() == 0
    await screenshot(page, "confirm")
    await page.get_by_test_id("confirm-action").click()
    assert (await received())["actions"][0]["action_id"] == "more"

    await bot.client.views_publish(user_id="U0ANA", view={"type": "home", "blocks": HOME["blocks"][:1]})
    await expect(home.get_by_test_id("action-stop")).to_have_count(0)
    await page.get_by_test_id("tab-messages").click()
    await expect(page.get_by_test_id("composer").first).to_be_visible()


async def test_a_choice_that_is_not_confirmed_is_taken_back(bot, page, open_page, received):
    confirm = {name: plain(name) for name in ("title", "text", "confirm", "deny")}
    select = {"type": "static_select", "action_id": "pick", "options": AGENTS, "confirm": confirm}
    blocks = [{"type": "actions", "elements": [{**select, "initial_option": AGENTS[0]}, button("go", "Go")]}]
    await bot.client.chat_postMessage(channel="C0GENERAL", text="choose", blocks=blocks)
    await open_page("general")
    await page.get_by_test_id("action-pick").select_option("beta")
    await page.get_by_role("button", name="deny").click()
    await expect(page.get_by_test_id("action-pick")).to_have_value("alpha")
    await page.get_by_test_id("action-go").click()
    payload = await received()
    assert payload["actions"][0]["action_id"] == "go"
    (values,) = payload["state"]["values"].values()
    assert values["pick"]["selected_option"]["value"] == "alpha"


async def test_a_command_is_completed_and_its_answer_is_shown_to_the_person_only(ana, page, open_page, received):
    received.answers.append({"text": "fallback", "blocks": [HOME["blocks"][1]]})
    await open_page("general")
    composer = page.get_by_test_id("channel-pane").get_by_test_id("composer")
    await composer.press_sequentially("/ag")
    await expect(page.get_by_test_id("autocomplete").first).to_contain_text("/agent")
    await composer.press("Tab")
    await composer.press_sequentially("status of #rand")
    await composer.press("Tab")
    await composer.press("Enter")
    payload = await received()
    assert (payload["command"], payload["text"], payload["channel_id"]) == ("/agent", "status of #random", "C0GENERAL")
    await expect(page.get_by_test_id("message").last).to_contain_text("Only visible to you")
    await expect(page.get_by_test_id("action-stop")).to_be_visible()
    await screenshot(page, "command")
    await page.reload()
    await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")
    await expect(page.get_by_test_id("message")).to_have_count(0)

    await composer.fill("/dance")
    await composer.press("Enter")
    await expect(page.get_by_text("/dance is not a valid command.")).to_be_visible()
    await expect(composer).to_have_value("/dance")
    root = await ana.say("general", "a root")
    await open_page(f"general/{root}")
    reply = page.get_by_test_id("thread-pane").get_by_test_id("composer")
    await reply.fill("/agent status")
    await reply.press("Enter")
    await expect(page.get_by_text("/agent is not supported in threads. Sorry!")).to_be_visible()


async def test_shortcuts_are_in_the_menus_of_messages_and_of_the_composer(slack, bot, page, open_page, received):
    ts = await slack.as_person("ben").say("general", "the build is red")
    await open_page("general")
    message = page.get_by_test_id("message").last
    await message.hover()
    await message.get_by_label("More actions").click()
    await screenshot(page, "shortcut")
    await page.get_by_test_id("shortcut-ask").click()
    payload = await received()
    assert (payload["type"], payload["message_ts"]) == ("message_action", ts)
    await page.get_by_label("Shortcuts", exact=True).first.click()
    await screenshot(page, "global-shortcut")
    await page.get_by_test_id("shortcut-new").first.click()
    payload = await received()
    assert payload["type"] == "shortcut"
    view = {**MODAL, "blocks": [], "title": plain("Begin")}
    await bot.client.views_open(trigger_id=payload["trigger_id"], view=view)
    await expect(page.get_by_test_id("modal")).to_contain_text("Begin")


async def test_an_ephemeral_message_is_changed_and_removed_by_the_app(slack, ana, bot, page, open_page):
    root = await ana.say("general", "a root")
    await slack.as_person("ben").say("general", "a reply", thread=root)

    @bot.app.action("go")
    async def changed(ack, respond, body):
        await ack()
        if "Sure" in str(body["actions"][0]["text"]):
            question = [{"type": "actions", "elements": [button("go", "Really")]}]
            await respond("again", blocks=question, replace_original=True)
        else:
            await respond(delete_original=True)

    await open_page(f"general/{root}")
    blocks = [HOME["blocks"][1], {"type": "actions", "elements": [button("go", "Sure", style="primary")]}]
    await bot.client.chat_postEphemeral(channel="C0GENERAL", user="U0ANA", thread_ts=root, text="?", blocks=blocks)
    thread = page.get_by_test_id("thread-pane")
    await expect(thread.get_by_test_id("message").last).to_contain_text("Only visible to you")
    await expect(page.get_by_test_id("thread-summary")).to_contain_text("1 reply")
    await screenshot(page, "ephemeral")
    await thread.get_by_role("button", name="Sure").click()
    await thread.get_by_role("button", name="Really").click()
    await expect(thread.get_by_test_id("message")).to_have_count(2)
    await expect(page.get_by_test_id("thread-summary")).to_contain_text("1 reply")
