"""Requests to people: every click takes effect once or is answered, and nothing but a valid click approves."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from dataclasses import asdict, replace
from itertools import product

import pytest
from chat import Thread
from hostile_texts import BREAKS, FRAMES, LEADS

from connector.events import ThreadAddress, request_click_of
from connector.formatting.content import Content
from connector.protocols import ALLOW, DENY, InboxEntry, PersonRequest
from local_slack import DropBeforeCall, ErrorResponse

REQUEST = PersonRequest("call-1", "digest-1", "Allow rm?", "`rm -rf build`", "It deletes data")
CHOOSE = ("request_choose_0", "request_choose_1")


class Asked:
    """A request of a run in a thread, its message, and the task that waits for the answer."""

    def __init__(self, thread, request=REQUEST):
        self.thread, self.slack = thread, thread.chat.slack
        self.answer = asyncio.ensure_future(thread.run.people.ask(request))

    async def shown(self, title="✋ Allow rm?"):
        self.message = await self.slack.until(
            lambda _: next((post for post in self.thread.posts if post.text.startswith(title)), None)
        )
        return self

    def click(self, who="ana", action=CHOOSE[ALLOW], **more):
        return self.slack.as_person(who).click(self.thread.channel, self.message.ts, action, **more)

    @property
    def blocks(self):
        return self.slack.workspace.message(self.message.channel, self.message.ts).blocks

    @property
    def controls(self):
        return [each for block in self.blocks if block["type"] == "actions" for each in block["elements"]]

    async def until_shown(self, text):
        await self.slack.until(lambda _: text in json.dumps(self.blocks, ensure_ascii=False))

    async def until_whispered(self, who, text):
        user = self.slack.person(who).id
        await self.slack.until(
            lambda ws: any(text in w.text and w.only_for == user for w in ws.whispers(self.message.channel))
        )


async def ask(chat, request=REQUEST, title="✋ Allow rm?"):
    thread = await chat.start()
    return await Asked(thread, request).shown(title)


async def test_a_click_is_stored_before_the_run_goes_on_and_replaces_the_buttons(chat):
    asked = await ask(chat)
    texts = json.dumps(asked.blocks)
    assert [each["text"]["text"] for each in asked.controls] == ["Allow", "Deny", "Deny with a reason…"]
    assert all(part in texts for part in ("rm -rf build", "It deletes data", f"<@{chat.ana.person.id}> may answer"))
    await asked.click()
    answer = await asked.answer
    assert (answer.kind, answer.chosen, answer.names) == ("click", (ALLOW,), ("Ana",))
    await asked.until_shown("✅ Ana allowed it")
    assert asked.controls == []


async def test_the_native_session_is_suspended_and_the_status_says_what_it_waits_for(chat):
    asked = await ask(chat)
    place = (asked.message.channel, asked.thread.ts)
    await chat.slack.until(lambda ws: ws.session(*place) and ws.session(*place).status == "suspended")
    await chat.slack.until(lambda _: any("Waiting for your answer: Allow rm?" in t for t in asked.thread.texts))
    await asked.click(action=CHOOSE[DENY])
    assert not (await asked.answer).allows
    await chat.slack.until(lambda ws: ws.session(*place).status == "processing")


@pytest.mark.parametrize(
    ("approvers", "may", "may_not"),
    [
        (("owner",), "ana", "ben"),
        (("participants",), "ana", "ben"),
        (("anyone",), "ben", ""),
        (("U0BEN",), "ben", "ana"),
        (("owner", "U0BEN"), "ben", "chloe"),
    ],
)
async def test_only_those_who_may_answer(chat, approvers, may, may_not):
    asked = await ask(chat, replace(REQUEST, approvers=approvers))
    if may_not:
        await asked.click(may_not)
        await asked.until_whispered(may_not, "You may not answer this")
        assert not asked.answer.done()
    await asked.click(may)
    assert (await asked.answer).by == (chat.slack.person(may).id,)


async def test_later_clicks_are_told_who_was_first(chat):
    asked = await ask(chat, replace(REQUEST, approvers=("anyone",)))
    hold = chat.hold("chat.update", times=3)
    await asked.click("ana")
    await asked.click("ben", CHOOSE[DENY])
    await asked.until_whispered("ben", "This was answered already: Allow, by Ana.")
    assert (await asked.answer).allows
    hold.set()


async def test_the_copy_of_a_request_that_remains_shows_the_answer(process, client):
    async with process(calls_late_s=0.1) as chat:
        thread = await chat.start_shown()
        chat.fail("chat.postMessage", DropBeforeCall())
        again = chat.hold("chat.postMessage")
        asked = Asked(thread)
        await again.reached.wait()
        key = json.loads(chat.calls("chat.postMessage")[-1]["arguments"]["metadata"])["event_payload"]["key"]
        place = ThreadAddress(chat.slack.team_id, chat.general, thread.ts)
        await client.post(place, Content("✋ Allow rm?"), key)  # the attempt that failed
        again.set()
        await chat.slack.until(lambda _: len(thread.posts) == 3)
        asked.message = thread.posts[-1]
        await asked.click()
        await asked.answer
        await thread.run.answer("the answer")
        await chat.slack.until(lambda _: len(thread.posts) == 2 and "Ana allowed it" in str(thread.posts[0].blocks))


async def test_two_people_have_to_allow_it_and_one_may_deny(chat):
    asked = await ask(chat, replace(REQUEST, approvers=("anyone",), needed=2))
    assert asked.controls[0]["confirm"]["text"]["text"] == "2 people must allow this."
    await asked.click("ana")
    await asked.until_shown("1 of 2 have allowed it")
    await asked.click("ana")
    await asked.until_whispered("ana", "One more person must allow it.")
    await asked.click("ben")
    assert (await asked.answer).names == ("Ana", "Ben")
    other = await ask(chat, replace(REQUEST, approvers=("anyone",), needed=2))
    await other.click("ana")
    await other.click("ben", CHOOSE[DENY])
    assert not (await other.answer).allows


async def test_the_default_applies_at_the_deadline_and_a_click_is_too_late(chat):
    asked = await ask(chat, replace(REQUEST, timeout_s=0.3))
    hold = chat.hold("chat.update", times=2)
    answer = await asked.answer
    assert (answer.kind, answer.allows) == ("deadline", False)
    await asked.click()
    await asked.until_whispered("ana", "Too late: the time for an answer is over.")
    hold.set()
    await asked.until_shown("⌛ No one answered in time. Deny.")


async def test_a_click_that_was_stored_in_time_counts_also_if_it_is_applied_after_the_deadline(process, store):
    request = replace(REQUEST, timeout_s=2.0, default=ALLOW)
    async with process() as chat:
        thread = await chat.start()
        asked = await Asked(thread, request).shown()
        thread.run.obey()
        address, click = request_click_of(payload_of(asked, chat.ana.person.id, CHOOSE[DENY]), chat.slack.team_id)
        deadline_s = time.time() + request.timeout_s
    stored = asdict(replace(click, admitted_s=time.time()))
    await store.admit(address.place.conversation_id, InboxEntry(click.id, "click", stored), None)
    await asyncio.sleep(deadline_s - time.time())
    async with process() as chat:
        run = await chat.sessions.next_run()
        answer = await run.people.ask(request)
        assert (answer.kind, answer.allows) == ("click", False)
        asked.answer.cancel()
        await run.answer("done")


async def test_a_private_question_that_slack_refuses_is_void(chat):
    thread = await chat.start()
    asked = Asked(thread, replace(QUESTION, person="U0NOBODY", timeout_s=60))
    answer = await asked.answer
    assert (answer.kind, answer.text) == ("void", "It could not be asked: Slack rejected the message.")
    await thread.run.answer("done")


async def test_a_request_with_other_arguments_voids_the_first_one(chat):
    asked = await ask(chat)
    people = asked.thread.run.people
    again = asyncio.ensure_future(people.ask(replace(REQUEST, digest="digest-2")))
    await asked.until_shown("It was changed after this question.")
    assert (await asked.answer).kind == "void"
    latest = await chat.slack.until(lambda _: (p := asked.thread.posts[-1]).ts != asked.message.ts and p)
    await chat.ana.click(asked.thread.channel, latest.ts, CHOOSE[ALLOW])
    assert (await again).allows
    assert await people.start(REQUEST.id, "digest-1") is not None
    assert await people.start(REQUEST.id, "digest-2") is None
    assert await people.start(REQUEST.id, "digest-2") is not None, "an approval is for one call"


async def test_arguments_that_change_and_change_back_are_not_approved_any_more(chat):
    asked = await ask(chat)
    people = asked.thread.run.people
    await asked.click()
    assert (await asked.answer).allows
    other = asyncio.ensure_future(people.ask(replace(REQUEST, digest="digest-2")))
    await asked.until_shown("It was changed after this question.")
    assert not (await people.ask(REQUEST)).allows
    assert await people.start(REQUEST.id, REQUEST.digest) is not None
    latest = await chat.slack.until(lambda _: (p := asked.thread.posts[-1]).ts != asked.message.ts and p)
    await chat.ana.click(asked.thread.channel, latest.ts, CHOOSE[DENY])
    assert not (await other).allows


async def test_nothing_begins_that_was_denied_or_has_other_arguments(chat):
    asked = await ask(chat)
    people = asked.thread.run.people
    assert REQUEST.id in people.unbegun
    assert await people.start("unknown", "x") is None
    await asked.click(action=CHOOSE[DENY])
    await asked.answer
    assert await people.start(REQUEST.id, REQUEST.digest) is not None
    assert REQUEST.id in people.unbegun


async def test_the_end_of_the_run_ends_its_requests(chat):
    asked = await ask(chat)
    await asked.thread.run.answer("never mind")
    await asked.until_shown("No longer needed: the run has ended.")
    assert (await asked.answer).kind == "void"
    assert asked.controls == []


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("thinking", {}),
        ("agent", {"id": "researcher-1", "name": "researcher", "parent": "", "text": "", "state": "cancelled"}),
    ],
)
async def test_a_stop_of_a_call_ends_its_request_while_the_run_continues(chat, event, data):
    asked = await ask(chat, replace(REQUEST, id="researcher-1/call-1"))
    asked.answer.cancel()
    await asyncio.wait({asked.answer})
    await asked.thread.run.progress(event, **data)
    await asked.until_shown("No longer needed: its call was stopped.")
    assert asked.controls == []
    await asked.thread.run.answer("done")


async def test_a_request_is_kept_whose_call_another_session_makes_again(chat):
    asked = await ask(chat, replace(REQUEST, id="researcher-1/call-1"))
    other = await Asked(asked.thread, replace(REQUEST, id="call-2", title="Allow mv?")).shown("✋ Allow mv?")
    for each in (asked.answer, other.answer):
        each.cancel()
    await asyncio.wait({asked.answer, other.answer})
    run = asked.thread.run
    for state, agent in (("suspended", "researcher-1"), ("cancelled", "writer-1")):
        await run.progress("agent", id=agent, name=agent[:-2], state=state, parent="", text="")
    for event in ("executing", "thinking"):
        await run.progress(event)
    await asked.click()
    await other.click()
    assert (await run.people.ask(replace(REQUEST, id="researcher-1/call-1"))).allows
    assert (await run.people.ask(replace(REQUEST, id="call-2"))).allows
    await run.answer("done")


async def test_a_question_that_slack_rejects_cannot_be_answered(chat):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", ErrorResponse("invalid_blocks"), times=1)
    answer = await Asked(thread).answer
    assert (answer.kind, answer.allows) == ("void", False)


async def test_long_details_become_a_file_and_are_not_stored_with_the_run(chat, store):
    asked = await ask(chat, replace(REQUEST, details="```\n" + "x" * 100_000 + "\n```"))
    files = [file for post in asked.thread.posts for file in post.files]
    assert len(files) == 1
    await asked.click()
    assert (await asked.answer).allows
    await asked.until_shown("✅ Ana allowed it")
    assert "xxx" not in json.dumps(asked.blocks)
    assert len(json.dumps((await store.record(asked.thread.run.conversation)).run)) < 20_000


async def test_a_deployed_replica_keeps_the_request_and_its_buttons(process):
    async with process() as chat:
        thread = await chat.start()
        first = await Asked(thread).shown()
        thread.run.obey()
    async with process() as chat:
        run = await chat.sessions.next_run()
        thread = Thread(chat, thread.ts)
        thread.run = run
        assert REQUEST.id in run.people.unbegun
        again = asyncio.ensure_future(run.people.ask(REQUEST))
        await chat.ana.click(thread.channel, first.message.ts, CHOOSE[ALLOW])
        assert (await again).allows
        assert len([text for text in thread.texts if text.startswith("✋ Allow")]) == 1
        assert await run.people.start(REQUEST.id, REQUEST.digest) is None
        first.answer.cancel()
        await run.answer("done")


async def test_one_click_over_two_replicas_is_one_answer(process, slack, sessions):
    async with process() as chat, process() as _:
        asked = await ask(chat, replace(REQUEST, approvers=("anyone",), needed=2))
        payload = payload_of(asked, chat.ana.person.id)
        for _ in range(6):
            chat.deliver_payload(payload, "interactive")
        await chat.acknowledged()
        await asked.until_shown("1 of 2 have allowed it")
        for user in ("ben", "chloe", "ben"):
            await asyncio.gather(*(asked.click(user) for _ in range(2)), return_exceptions=True)
        assert len((await asked.answer).by) == 2
        await asked.thread.run.answer("done")


QUESTION = PersonRequest(
    "call-2", "q", "Which?", options=("this", "that"), approvers=("participants",), is_approval=False, takes_text=True
)


async def test_a_question_is_answered_by_a_button_a_message_or_not_at_all(chat):
    asked = await ask(chat, QUESTION, "❓ Which?")
    await asked.click(action=CHOOSE[1])
    assert (await asked.answer).chosen == (1,)
    await asked.until_shown("☑️ Ana: that")
    later = Asked(asked.thread, replace(QUESTION, id="call-3", title="And?"))
    await later.shown("❓ And?")
    asked.thread.run.people.answer_by_message("call-3")
    assert (await later.answer).kind == "message"
    asked.thread.run.people.answer_by_message("call-5")  # while it is being stored
    assert (await Asked(asked.thread, replace(QUESTION, id="call-5", title="Why?")).answer).kind == "message"
    never = Asked(asked.thread, replace(QUESTION, id="call-4", title="When?", timeout_s=0.2, default=0))
    assert (await never.answer).chosen == (0,)


async def test_a_private_question_is_seen_and_answered_by_one_person(chat):
    thread = await chat.start()
    ben = chat.ben.person.id
    asked = Asked(thread, replace(QUESTION, person=ben))
    whisper = await chat.slack.until(
        lambda ws: next((w for w in ws.whispers(chat.general) if w.only_for == ben and w.blocks), None)
    )
    await thread.contains("🔒 I have asked Ben privately, and wait for the answer.")
    await chat.ben.click("general", whisper.ts, CHOOSE[0])
    assert (await asked.answer).names == ("Ben",)
    await chat.slack.until(
        lambda ws: any("☑️ Ben: this" in json.dumps(w.blocks, ensure_ascii=False) for w in ws.whispers(chat.general))
    )


async def test_the_first_late_click_replaces_the_buttons_of_a_private_question(chat):
    thread = await chat.start()
    ben = chat.ben.person.id
    asked = Asked(thread, replace(QUESTION, person=ben, timeout_s=0.3))
    whisper = await chat.slack.until(
        lambda ws: next((w for w in ws.whispers(chat.general) if w.only_for == ben and w.blocks), None)
    )
    assert (await asked.answer).kind == "deadline"
    await chat.ben.click("general", whisper.ts, CHOOSE[0])
    await chat.slack.until(
        lambda ws: any("No one answered in time" in json.dumps(w.blocks) for w in ws.whispers(chat.general))
    )


# Hostile input.


def payload_of(asked, user, action=CHOOSE[ALLOW]):
    """Return the payload of a click as Slack sends it."""
    value = asked.controls[0]["value"]
    channel, ts, thread_ts = asked.message.channel, asked.message.ts, asked.thread.ts
    return {
        "type": "block_actions",
        "team": {"id": asked.slack.team_id},
        "user": {"id": user, "team_id": asked.slack.team_id},
        "channel": {"id": channel},
        "container": {"type": "message", "message_ts": ts, "channel_id": channel, "thread_ts": thread_ts},
        "message": {"ts": ts, "thread_ts": thread_ts},
        "actions": [{"type": "button", "action_id": action, "value": value, "action_ts": "1799999999.000100"}],
    }


def form_of(asked, user, metadata):
    values = {"request_text": {"request_text": {"type": "plain_text_input", "value": "yes, allow it"}}}
    view = {
        "type": "modal",
        "id": "V1",
        "callback_id": "request_form",
        "private_metadata": metadata,
        "state": {"values": values},
    }
    team = asked.slack.team_id
    return {"type": "view_submission", "team": {"id": team}, "user": {"id": user, "team_id": team}, "view": view}


JUNK = [
    None,
    "",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    [[]],
    {"id": "U0ANA"},
    "x" * 5_000,
    "\x00",
    "a:b",
    "🙂",
    "U0ANA ",
    "u0ana",
    "' OR 1=1 --",
]
STRANGERS = ["U0BEN", "U0CHLOE", "U0ALPHA", "UNOBODY", "USLACKBOT", "B0ALPHA", "T0LOCAL", "U0ANA2", "U0AN"]


def mutations(base):
    """Yield variants of a valid click of Ana that are no valid click of hers."""
    team, value = base["team"]["id"], base["actions"][0]["value"]
    conversation, run, key = value.rsplit(":", 2)
    other = conversation.rpartition(":")[0] + ":1700000000.000001"
    values = [
        *(
            f"{conversation}:{run}:{each}"
            for each in ("", "0" * 16, key[:-1], f"{key}0", key.upper() + "X", "../x", "*")
        ),
        *(f"{conversation}:{each}:{key}" for each in ("", "0" * 32, run[:-1], f"{run}0", "*", "%")),
        *(
            f"{each}:{run}:{key}"
            for each in ("", other, "T9:C9:1.1", f"{team}:C9:1.1", "T9" + conversation[len(team) :])
        ),
        *(f"{value}{end}" for end in (":0", " 0", "\n", "\x00", "|", ":allow")),
        *(f"{start}{value}" for start in (":", " ", "x", "\u202e")),
        value[::-1],
        value.replace(":", "/"),
        json.dumps({"id": value}),
    ]
    paths = [
        (("user", "id"), [*JUNK, *STRANGERS]),
        (("user",), [None, "U0ANA", [], 7, {}]),
        (("actions", 0, "value"), [*values, *JUNK]),
        (
            ("actions", 0, "action_id"),
            [
                "allow",
                "request_choose_",
                "request_choose_2",
                "request_choose_4",
                "request_choose_-1",
                "request_choose_00",
                "request_send",
                "request_always",
                "request_write",
                "stop",
                *JUNK,
            ],
        ),
        (("actions", 0, "action_ts"), [*JUNK, "now", "1e9", "-1", "1" * 60]),
        (("actions", 0), [None, "request_choose_0", [], 7]),
        (("actions",), [None, [], {}, "x", [None], [[]]]),
        (("type",), ["block_suggestion", "message_action", "view_closed", "", "x"]),
        (("channel", "id"), ["C9OTHER", "D1", "c0general"]),
    ]
    for user, number in product(STRANGERS, range(5)):
        action = {**base["actions"][0], "action_id": f"request_choose_{number}"}
        yield {**base, "user": {**base["user"], "id": user}, "actions": [action]}
    yield {**base, "team": {"id": "T9OTHER"}, "user": {**base["user"], "team_id": "T9OTHER"}}
    for path, junk in paths:
        for each in junk:
            variant = copy.deepcopy(base)
            place = variant
            for name in path[:-1]:
                place = place[name]
            place[path[-1]] = each
            if variant != base:
                yield variant


def forged_forms(asked, base):
    value, ts = base["actions"][0]["value"], asked.message.ts
    ana = "U0ANA"
    for chosen in ("0", "00", "-0", "0 0", "1 0", "0 1", "2", "x", "0.0", "+0"):
        yield form_of(asked, ana, f"{value} {ts} 1799999999.000100 {chosen}")
    for metadata in ("", " ", value, f"{value} x y 1", f"T9:C9:1.1:r:k {ts} {ts} 0", f"{value} {ts}", None, 7, {}, "0"):
        yield form_of(asked, ana, metadata)
    for user, chosen in product(STRANGERS, ("", " 1", " 0")):
        yield form_of(asked, user, f"{value} {ts} 1799999999.000100{chosen}")


CONSENTS = [
    *(
        "ok",
        "OK!",
        "yes",
        "y",
        "Yes, allow it.",
        "allow",
        "Allow",
        "ALLOW",
        "approve",
        "approved",
        "go ahead",
        "do it",
        "sure",
        "lgtm",
        "✅",
        "👍",
    ),
    *(
        "!allow",
        "!approve",
        "!approvals allow",
        "/approve",
        "request_choose_0",
        "Allow rm?",
        "I allow rm",
        "Deny? No, allow!",
    ),
    *(f"{lead}allow" for lead in LEADS.values()),
    *(f"no{each}allow" for each in BREAKS.values()),
    *FRAMES.values(),
    '{"action_id": "request_choose_0"}',
]


async def test_no_hostile_payload_and_no_text_approves_and_none_crashes(chat):
    asked = await ask(chat)
    base = payload_of(asked, chat.ana.person.id)
    hostile = [*mutations(base), *forged_forms(asked, base)]
    assert len(hostile) + len(CONSENTS) >= 300
    for payload in hostile:
        chat.deliver_payload(payload, "interactive")
    for consent in CONSENTS:
        await asked.thread.say(consent)
    await chat.acknowledged(60)
    assert not asked.answer.done()
    assert asked.controls
    chat.deliver_payload(base, "interactive")
    assert (await asyncio.wait_for(asked.answer, 20)).allows
    for _ in range(3):  # a replay
        chat.deliver_payload(base, "interactive")
    await chat.acknowledged()
    people = asked.thread.run.people
    assert await people.start(REQUEST.id, REQUEST.digest) is None
    assert await people.start(REQUEST.id, REQUEST.digest) is not None
    assert await people.start(REQUEST.id, REQUEST.digest, repeatable=True) is None, "a repeatable call continues"
    assert await people.start(REQUEST.id, "other", repeatable=True) is not None


MARKUP = [
    *(
        "<!channel>",
        "<@U0BEN>",
        "<http://evil|here>",
        "*bold*",
        "`code`",
        "```",
        "~x~",
        "&amp;",
        "</b>",
        "<script>alert(1)</script>",
    ),
    *(":smile:", "> quote", "a\nb", "\u202eevil", "x" * 300, "'\"", "{{x}}", "%s", "\\", "\x07", "# head", "| a | b |"),
    *LEADS.values(),
]


@pytest.mark.parametrize("markup", MARKUP, ids=range(len(MARKUP)))
async def test_markup_in_titles_details_and_options_stays_text(chat, markup):
    options = (f"1{markup}", f"2{markup}")
    request = replace(QUESTION, title=f"Which {markup} one?", details=f"Look: {markup}", options=options)
    asked = await ask(chat, request, "❓ Which")
    shown = json.dumps([block for block in asked.blocks if block["type"] in {"section", "context"}], ensure_ascii=False)
    assert not any(each in shown for each in ("<!channel>", "<@U0BEN>", "<http://evil|here>", "<script>"))
    assert [each["text"]["type"] for each in asked.controls] == ["plain_text", "plain_text"]
    await asked.click(action=CHOOSE[1])
    assert (await asked.answer).chosen == (1,)


async def test_a_question_is_shown_whole(chat):
    question = "\n".join(["Which part?", *(f"- part {number} & more" for number in range(60))])
    asked = await ask(chat, replace(REQUEST, title=question, is_approval=False, takes_text=True), "❓ Which part?")
    assert "part 59 &amp; more" in json.dumps(asked.blocks)
    await asked.click()
    await asked.answer


async def test_the_details_of_a_request_are_shown_whole_however_long_their_escaped_form_is(chat):
    details = "```\n" + "<td>&nbsp;</td>\n" * 450 + "rm -rf /\n```"
    asked = await ask(chat, replace(REQUEST, details=details))
    file = chat.slack.workspace.file("F0LOCAL0001")
    shown = json.dumps(asked.blocks) + (file.content.decode() if file else "")
    assert "rm -rf /" in shown
    await asked.click()
    await asked.answer
