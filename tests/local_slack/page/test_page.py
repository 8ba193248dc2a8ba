"""The page in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect
from slack_errors import error_of

from local_slack.workspace.messages import Body

pytestmark = pytest.mark.browser

GENERAL = "C0GENERAL"
HOURGLASS = "hourglass_flowing_sand"
PERSONA = {"username": "Alpha · Researcher", "icon_emoji": ":mag:"}
LONG = "every word of this line matters to its readers, and the next one is no shorter than this"


@pytest.fixture
def post(client):
    async def post(channel, text, thread=None, **persona):
        return str((await client.chat_postMessage(channel=channel, text=text, thread_ts=thread, **persona))["ts"])

    return post


async def until_crossed(slack, channel, ts):
    """Wait until this message has an ❌; return all messages that have one."""
    await slack.until(lambda workspace: workspace.message(channel, ts).reacted("x"))
    return [message.ts for message in slack.workspace.messages(channel) if message.reacted("x")]


async def switch_person(page, name):
    await page.get_by_test_id("person-switch").click()
    await page.get_by_test_id(f"person-option-{name}").click()
    await expect(page).to_have_url(re.compile(f"#/{name}/"))
    await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")


async def test_the_stop_button_of_a_direct_message_crosses_the_status(  # noqa: PLR0917 - fixtures
    slack, ana, client, page, open_page, post
):
    dm = await ana.open_dm("alpha")
    await open_page("@alpha")
    pane = page.get_by_test_id("channel-pane")
    stop = pane.get_by_test_id("stop-run")
    await expect(pane.get_by_text("A status message in its thread")).to_be_visible()

    asked = await ana.say(dm, "look through the notes")
    await client.reactions_add(channel=dm, timestamp=asked, name=HOURGLASS)
    await post(dm, "🛑 Stopped by Ana.")
    status = await post(dm, "⚙️ Thinking…")
    await post(dm, "⚙️ is what I call a gear", **PERSONA)
    await expect(pane.get_by_text("The agent is working.")).to_be_visible()
    await expect(pane.locator(".at-work")).to_have_attribute("data-ts", status)
    await stop.click()
    assert await until_crossed(slack, dm, status) == [status]
    await expect(stop).to_contain_text("Stop now")

    await client.chat_delete(channel=dm, ts=status)
    await client.reactions_remove(channel=dm, timestamp=asked, name=HOURGLASS)
    await expect(stop).to_be_hidden()


async def test_the_stop_button_of_a_thread_crosses_the_status_of_its_latest_run(  # noqa: PLR0917 - fixtures
    slack, ana, client, page, open_page, post
):
    root = await ana.say("general", "@alpha look through the notes")
    left_behind = await post(GENERAL, "⚙️ Thinking…", root)
    await post(GENERAL, "🛑 Stopped by Ben.", root)
    again = await ana.say("general", "then only the roadmap", thread=root)
    await client.reactions_add(channel=GENERAL, timestamp=again, name=HOURGLASS)
    await open_page(f"general/{root}")
    stop = page.get_by_test_id("thread-pane").get_by_test_id("stop-run")

    await stop.click()
    assert await until_crossed(slack, GENERAL, again) == [again], "there is no status yet"
    status = await post(GENERAL, ":gear: Thinking…", root)
    await post(GENERAL, "⚠️ I cannot take that in.", root)
    await expect(page.locator(f".at-work[data-ts='{status}']")).to_be_visible()
    await stop.click()
    assert left_behind not in await until_crossed(slack, GENERAL, status)


async def test_a_run_of_a_direct_message_is_not_shown_in_its_threads(ana, client, page, open_page):
    asked = await ana.dm("alpha", "look through the notes")
    await client.reactions_add(channel=await ana.open_dm("alpha"), timestamp=asked, name=HOURGLASS)
    await open_page(f"@alpha/{asked}")
    await expect(page.get_by_test_id("channel-pane").get_by_test_id("stop-run")).to_be_visible()
    await expect(page.get_by_test_id("thread-pane").get_by_test_id("run-bar")).to_contain_text("While Alpha works")


async def test_a_run_of_a_thread_in_a_direct_message_is_shown_there_only(ana, client, page, open_page, post):
    dm = await ana.open_dm("alpha")
    asked = await ana.say(dm, "look through the notes")
    await client.reactions_add(channel=dm, timestamp=asked, name=HOURGLASS)
    await post(dm, "⚙️ Thinking…", asked)
    await ana.say(dm, "what is new?")
    await open_page(f"@alpha/{asked}")
    channel, thread = page.get_by_test_id("channel-pane"), page.get_by_test_id("thread-pane")
    await expect(thread.get_by_test_id("run-bar")).to_contain_text("The agent is working.")
    await expect(channel.get_by_test_id("stop-run")).to_be_hidden()
    await expect(channel.get_by_test_id("thread-summary")).to_contain_text("1 reply")


async def test_a_thread_of_an_app_that_is_not_connected_has_no_hint_on_steering(ana, page, open_page, post):
    alert = await post(GENERAL, "Deployed.")
    await ana.say("general", "thanks", thread=alert)
    await open_page(f"general/{alert}")
    thread = page.get_by_test_id("thread-pane")
    await expect(thread.get_by_text("thanks")).to_be_visible()
    await expect(thread.get_by_test_id("run-bar")).to_be_hidden()


async def test_a_thread_of_more_than_one_page_is_shown_to_its_end(slack, ana, page, open_page):
    root = await ana.say("general", "count with me")
    for number in range(1, 1003):
        slack.workspace.post(GENERAL, ana.person, Body(str(number)), thread_ts=root)
    await open_page(f"general/{root}")
    thread = page.get_by_test_id("thread-pane").get_by_test_id("message")
    await expect(thread).to_have_count(1003)
    await expect(thread.last).to_contain_text("1002")


async def test_an_agent_counts_once_in_a_thread_with_and_without_a_persona(ana, page, open_page, post):
    root = await ana.say("general", "who owns the budget?")
    await open_page("general")
    pane = page.get_by_test_id("channel-pane")
    message, suggestion = pane.locator(f"[data-testid=message][data-ts='{root}']"), pane.get_by_test_id("suggestion")
    await expect(suggestion).to_be_visible()
    await post(GENERAL, "I look it up.", root, **PERSONA)
    await expect(message.get_by_test_id("thread-summary")).to_contain_text("1 reply")
    await expect(suggestion).to_be_hidden()
    await post(GENERAL, "Chloe, I think.", root)
    await expect(message.get_by_test_id("thread-summary")).to_contain_text("2 replies")
    await expect(message.locator(".faces .avatar")).to_have_count(1)

    await post("C0RANDOM", "Good morning.", **PERSONA)
    await open_page("random")
    await expect(pane.get_by_text("Good morning.")).to_be_visible()
    await expect(suggestion).to_be_hidden()


async def test_an_edit_of_an_older_message_is_shown_with_its_page(slack, ana, page, open_page):
    first = await ana.say("general", "who owns the budget?")
    for number in range(80):
        slack.workspace.post(GENERAL, ana.person, Body(f"note {number}"))
    await open_page("general")
    messages = page.get_by_test_id("channel-pane").get_by_test_id("message")
    await expect(messages).to_have_count(60)

    async def answer_late(route):
        fetched = await route.fetch()
        await ana.edit("general", first, "who owns the plan?")
        await ana.say("general", "The fetch is late.")
        await expect(messages.last).to_contain_text("The fetch is late.")
        await expect(messages).to_have_count(61)
        await route.fulfill(response=fetched)

    await page.route("**/api/conversations.history", answer_late, times=1)
    await messages.first.scroll_into_view_if_needed()
    await expect(messages).to_have_count(82)
    await expect(messages.first).to_contain_text("who owns the plan?")


async def test_reactions_and_replies_that_arrive_while_their_message_is_fetched_are_shown(ana, client, page, open_page):
    root = await ana.say("general", "who owns the budget?")

    async def answer_late(route):
        fetched = await route.fetch()
        await client.reactions_add(channel=GENERAL, timestamp=root, name="eyes")
        await client.reactions_add(channel=GENERAL, timestamp=root, name="x")
        await client.reactions_remove(channel=GENERAL, timestamp=root, name="x")
        await ana.say("general", "Chloe, I think", thread=root)
        await ana.say("general", "The fetch is late.")
        await expect(page.get_by_text("The fetch is late.")).to_be_visible()
        await route.fulfill(response=fetched)

    await page.route("**/api/conversations.history", answer_late, times=1)
    await open_page("general")
    message = page.get_by_test_id("channel-pane").locator(f"[data-testid=message][data-ts='{root}']")
    await expect(message.locator(".reaction")).to_have_count(1)
    await expect(message.get_by_test_id("thread-summary")).to_contain_text("1 reply")


@pytest.mark.parametrize("of", ["root", "reply"])
async def test_a_link_to_a_message_opens_its_thread_in_the_page(ana, client, page, open_page, post, *, of):
    root = await ana.say("general", "the other thread")
    linked = await ana.say("general", "a reply there", thread=root) if of == "reply" else root
    link = (await client.chat_getPermalink(channel=GENERAL, message_ts=linked))["permalink"]
    await post(GENERAL, f"🍴 It continues in <{link}|a new thread>.")
    await open_page("general")
    await page.get_by_test_id("channel-pane").get_by_role("link", name="a new thread").click()
    await expect(page.get_by_test_id("thread-pane").get_by_text("the other thread")).to_be_visible()
    assert len(page.context.pages) == 1


async def test_a_click_on_a_suggested_prompt_sends_it(slack, ana, bot, page, open_page):
    dm, prompt = await ana.open_dm("alpha"), {"title": "The news", "message": "What is new?"}
    await bot.client.assistant_threads_setSuggestedPrompts(channel_id=dm, prompts=[prompt])
    await open_page("@alpha")
    prompts = page.get_by_test_id("channel-pane").get_by_test_id("suggested-prompts")
    await prompts.get_by_role("button", name="The news").click()
    (sent,) = await slack.until(lambda ws: ws.messages(dm))
    assert (sent.user, sent.text) == ("U0ANA", "What is new?")
    assert (await bot.event(lambda event: event.get("text") == "What is new?"))["channel"] == dm


async def test_the_app_learns_which_channel_a_person_opens_beside_its_direct_message(bot, page, open_page):
    await open_page("random")
    await page.get_by_test_id("dm-alpha").click()
    opened = await bot.event(lambda event: event["type"] == "app_home_opened")
    assert (opened["user"], opened["tab"]) == ("U0ANA", "messages")
    await page.get_by_test_id("channel-general").click()
    seen = await bot.event(lambda event: event["type"] == "app_context_changed")
    assert [each["value"] for each in seen["context"]["entities"]] == [GENERAL]


async def test_after_a_switch_of_the_person_a_visible_thread_stays_open(slack, ana, page, open_page):
    root = await ana.say("general", "who owns the budget?")
    await ana.say("general", "Chloe, I think", thread=root)
    await open_page(f"general/{root}")
    thread = page.get_by_test_id("thread-pane")
    await switch_person(page, "ben")
    await expect(thread.get_by_text("Chloe, I think")).to_be_visible()
    await thread.get_by_test_id("composer").fill("She does")
    await thread.get_by_test_id("composer").press("Enter")
    (reply,) = await slack.until(lambda workspace: workspace.thread("general", root)[2:])
    assert (reply.user, reply.text) == ("U0BEN", "She does")

    await page.reload()
    await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")
    await expect(thread.get_by_test_id("writer-switch")).to_contain_text("Ben")

    private = await ana.dm("alpha", "between us")
    await open_page(f"@alpha/{private}")
    await expect(thread).to_contain_text("between us")
    await switch_person(page, "ben")
    await expect(thread).to_be_hidden()


async def test_the_keyboard_switches_who_writes_and_the_writer_goes_on_in_the_same_composer(slack, page, open_page):
    root = await slack.as_person("ana").say("general", "who owns the budget?")
    await open_page(f"general/{root}")
    channel, thread = page.get_by_test_id("channel-pane"), page.get_by_test_id("thread-pane")
    for pane in (channel, thread):
        await pane.get_by_test_id("composer").focus()
        await page.keyboard.press("Control+,")
        await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")
        await expect(pane.get_by_test_id("composer")).to_be_focused()
    await expect(thread.get_by_test_id("writer-switch")).to_contain_text("Chloe")
    await thread.get_by_test_id("writer-switch").press("Enter")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(thread.get_by_test_id("writer-switch")).to_contain_text("Ben")
    await expect(thread.get_by_test_id("composer")).to_be_focused()
    await page.keyboard.type("I do")
    await page.keyboard.press("Enter")
    (reply,) = await slack.until(lambda workspace: workspace.thread("general", root)[1:])
    assert (reply.user, reply.text) == ("U0BEN", "I do")


async def test_in_a_narrow_window_the_focus_is_in_the_visible_pane(ana, page, open_page):
    root = await ana.say("general", "who owns the budget?")
    await page.set_viewport_size({"width": 400, "height": 800})
    await open_page(f"general/{root}")
    await page.get_by_test_id("thread-pane").get_by_role("button", name="Back to the channel").press("Enter")
    back = page.get_by_test_id("channel-pane").get_by_role("button", name="Back to conversations")
    await back.press("Enter")
    await expect(page.get_by_test_id("channel-general")).to_be_focused()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("#/ana/random$"))
    await expect(back).to_be_focused()


KINDS = {"ben": "guest", "chloe": "external", "dora": "single_channel_guest"}


@pytest.mark.slack(people=("ana", *KINDS), kinds=KINDS, apps=("alerts",))
async def test_guests_external_people_and_apps_are_marked_next_to_their_names(slack, client, page, open_page):
    for name in ("ana", *KINDS):
        await slack.as_person(name).say("general", "hello")
    await slack.as_app("alerts").post(
        "general", blocks=[{"type": "header", "text": {"type": "plain_text", "text": "Up"}}]
    )
    await open_page("general")
    marked = ["Ana", "Benguest", "Chloeexternal", "Doraguest", "AlertsAPP"]
    heading = page.get_by_test_id("message").locator(".heading")
    await expect(heading).to_have_text([re.compile(rf"^{name}\d") for name in marked])
    await expect(page.get_by_test_id("dm-chloe")).to_contain_text("external")
    await switch_person(page, "dora")
    await expect(page.get_by_role("button", name="general")).to_be_visible()
    await expect(page.get_by_test_id("channel-random")).to_have_count(0)

    flags = ("is_restricted", "is_ultra_restricted", "is_stranger", "team_id")
    answers = [(await client.users_info(user=f"U0{name.upper()}"))["user"] for name in KINDS]
    assert [tuple(user[flag] for flag in flags) for user in answers] == [
        (True, False, False, "T0LOCAL"),
        (False, False, True, "T9EXTERNAL"),
        (True, True, False, "T0LOCAL"),
    ]


async def test_the_toolbar_of_a_message_covers_no_text(ana, page, open_page):
    root = await ana.say("general", LONG)
    for text in (LONG, f"{LONG}\n{LONG}\nin short", "no"):
        await ana.say("general", text, thread=root)
    await open_page(f"general/{root}")
    messages = page.get_by_test_id("thread-pane").get_by_test_id("message")
    await expect(messages).to_have_count(4)
    for number in range(4):
        await messages.nth(number).hover()
        assert await messages.nth(number).evaluate(COVERED_TEXTS) == []


# Returns the texts of the pane that are under the message's toolbar.
COVERED_TEXTS = """message => {
    const bar = message.querySelector(".toolbar").getBoundingClientRect();
    const range = document.createRange();
    const covered = [];
    for (const text of message.parentElement.querySelectorAll(".text, .heading")) {
        const nodes = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
        while (nodes.nextNode()) {
            range.selectNodeContents(nodes.currentNode);
            for (const line of range.getClientRects()) {
                const above = line.bottom <= bar.top, below = line.top >= bar.bottom;
                const outside = line.right <= bar.left || line.left >= bar.right;
                if (!above && !below && !outside) covered.push(nodes.currentNode.data);
            }
        }
    }
    return bar.width ? covered : ["no toolbar"];
}"""


async def test_the_buttons_that_confirm_a_deletion_are_in_one_row(ana, page, open_page):
    root = await ana.say("general", "a message without a purpose")
    await open_page(f"general/{root}")
    message = page.get_by_test_id("thread-pane").get_by_test_id("message")
    await message.hover()
    await message.get_by_test_id("delete-message").click()
    confirm = await message.get_by_test_id("confirm-delete").bounding_box()
    cancel = await message.get_by_role("button", name="Cancel").bounding_box()
    assert confirm["y"] == cancel["y"]


async def test_the_panel_sets_faults_and_shows_faults_and_limits(slack, client, page, open_page):
    await client.chat_postMessage(channel=GENERAL, text="hello")
    await open_page()
    await page.keyboard.press("Control+.")
    panel = page.get_by_test_id("fault-panel")
    active = panel.get_by_test_id("faults-on").get_by_role("listitem")
    await expect(panel).to_be_visible()
    await expect(panel.get_by_role("heading", name="Faults and limits")).to_be_focused()
    await expect(panel.get_by_test_id("rate-chat.postMessage").last).to_contain_text("1 / 300 a minute")

    await panel.get_by_test_id("call-fault-times").fill("2")
    await panel.get_by_test_id("fault-method").select_option("chat.update")
    await panel.get_by_test_id("argument-error").fill("cant_update_message")
    await panel.get_by_test_id("call-fault-on").click()
    await panel.get_by_test_id("delivery-fault-kind").select_option("delayed")
    await panel.get_by_test_id("argument-behind").fill("3")
    await panel.get_by_test_id("delivery-fault-on").click()
    await expect(active).to_have_text(
        [re.compile("chat.update.*refused: cant_update_message.*2"), re.compile("Events.*late, behind 3.*1")]
    )

    assert await error_of(client.chat_update(channel=GENERAL, ts="1.1", text="never")) == "cant_update_message"
    await expect(active.first).to_have_text(re.compile("cant_update_message.*1"))
    await expect(panel.get_by_test_id("record")).to_have_attribute("href", "/record.jsonl")
    await panel.get_by_test_id("clear-faults").click()
    await expect(panel.get_by_text("No active faults.")).to_be_visible()
    assert slack.faults.pending("chat.update") == 0
    await page.keyboard.press("Escape")
    await expect(panel).to_be_hidden()


@pytest.mark.slack(teams=("Playground", "Second"))
async def test_the_page_switches_between_workspaces(slack, page, open_page):
    second = slack.team("Second")
    await second.as_person("ana").say("general", "only in the second")
    await open_page()
    await page.get_by_test_id("team-switch").click()
    await page.get_by_test_id("team-option-Second").click()
    await expect(page).to_have_url(re.compile(r"\?team=T\w+#/ana/general"))
    await expect(page.get_by_text("only in the second")).to_be_visible()
    await page.get_by_test_id("composer").first.fill("so am I")
    await page.get_by_test_id("composer").first.press("Enter")
    await expect(page.get_by_text("so am I")).to_be_visible()
    assert len(second.workspace.messages("general")) == 2
    assert slack.workspace.messages("general") == ()


async def upload(client, channel, thread=None):
    file = {"content": "a page", "filename": "notes.html", "title": "The notes"}
    return str((await client.files_upload_v2(channel=channel, thread_ts=thread, **file))["file"]["id"])


async def test_a_session_is_shown_in_its_thread_with_its_stop_button_and_file(ana, bot, page, open_page):
    root = await ana.say("general", "@alpha look through the notes")
    place = {"channel_id": GENERAL, "thread_ts": root}
    await bot.client.api_call("agents.sessions.setStatus", json={**place, "status": "processing"})
    await bot.client.reactions_add(channel=GENERAL, timestamp=root, name=HOURGLASS)
    await open_page(f"general/{root}")
    thread = page.get_by_test_id("thread-pane")
    await expect(thread.get_by_test_id("session-state")).to_have_text("Working")
    await expect(thread.get_by_test_id("run-bar")).to_contain_text("The agent is working.")
    await expect(thread.get_by_test_id("stop-run")).to_be_hidden()

    await bot.client.api_call("agents.sessions.rename", json={**place, "title": "The notes of the team"})
    await bot.client.assistant_threads_setStatus(**place, status="is reading…")
    await expect(thread.get_by_test_id("thread-title")).to_have_text("The notes of the team")
    await expect(thread.get_by_test_id("session-text")).to_have_text("Alpha is reading…")
    await thread.get_by_test_id("stop-session").click()
    stopped = await bot.event(lambda event: event["type"] == "agent_session_stopped")
    assert (stopped["thread_ts"], stopped["user"]) == (root, "U0ANA")
    await bot.client.api_call("agents.sessions.setStatus", json={**place, "status": "active"})
    await expect(thread.get_by_test_id("session-state")).to_have_text("Ready")
    await expect(thread.get_by_test_id("stop-session")).to_be_hidden()

    await upload(bot.client, GENERAL, root)
    link = thread.get_by_test_id("file")
    await expect(link).to_contain_text("notes.html · HTML · 6 bytes")
    async with page.expect_download() as saving:
        await link.click()
    assert (await saving.value).suggested_filename == "notes.html"


async def test_a_file_is_a_download_for_those_who_can_see_it(slack, ana, session, client):
    file = await upload(client, await ana.open_dm("alpha"))
    url = f"{slack.url}page/files/{file}?token="
    for token, status in (("", 401), (slack.bot_token, 401), (slack.person("ben").token, 404)):
        async with session.get(url + token) as response:
            assert response.status == status
    async with session.get(url + ana.person.token) as response:
        assert await response.text() == "a page"
        assert response.headers["Content-Disposition"] == "attachment; filename*=UTF-8''notes.html"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
