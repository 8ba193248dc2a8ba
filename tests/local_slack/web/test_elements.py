"""Choices in messages, Home tabs and modals, as the app receives them."""

from __future__ import annotations

import asyncio

import pytest
from slack_errors import error_of


def text(words):
    return {"type": "plain_text", "text": words}


OPTIONS = [{"text": text(value), "value": value} for value in "abc"]
GROUPS = [{"label": text("All"), "options": OPTIONS}]
BUTTON = {"type": "button", "action_id": "go", "text": text("Go"), "value": "1"}
RATING = {"text": text("Good"), "value": "good"}, {"text": text("Bad"), "value": "bad"}
MENUS = [
    {"type": "static_select", "action_id": "one", "option_groups": GROUPS, "initial_option": OPTIONS[0]},
    {"type": "multi_static_select", "action_id": "some", "options": OPTIONS, "max_selected_items": 2},
    {"type": "radio_buttons", "action_id": "radio", "options": OPTIONS},
    {"type": "checkboxes", "action_id": "boxes", "options": OPTIONS, "initial_options": OPTIONS[:1]},
    {"type": "overflow", "action_id": "more", "options": OPTIONS},
    {"type": "users_select", "action_id": "who"},
    {"type": "multi_users_select", "action_id": "whom"},
    {"type": "conversations_select", "action_id": "where"},
    {"type": "datepicker", "action_id": "when"},
]
NOTE = {"type": "plain_text_input", "action_id": "note", "min_length": 2, "max_length": 5}
BLOCKS = [
    {"type": "actions", "block_id": "menus", "elements": [*MENUS, BUTTON]},
    {"type": "input", "block_id": "note", "label": text("Note"), "element": NOTE, "optional": True},
    {
        "type": "context_actions",
        "block_id": "small",
        "elements": [
            {
                "type": "feedback_buttons",
                "action_id": "rate",
                "positive_button": RATING[0],
                "negative_button": RATING[1],
            },
            {
                "type": "icon_button",
                "action_id": "drop",
                "icon": "trash",
                "text": text("Drop"),
                "visible_to_user_ids": ["U0ANA"],
            },
        ],
    },
]
CHOICES = [
    ("one", "b", "selected_option", OPTIONS[1]),
    ("some", ["a", "c"], "selected_options", [OPTIONS[0], OPTIONS[2]]),
    ("radio", "b", "selected_option", OPTIONS[1]),
    ("boxes", [], "selected_options", []),
    ("more", "c", "selected_option", OPTIONS[2]),
    ("who", "U0BEN", "selected_user", "U0BEN"),
    ("whom", ["U0BEN", "U0ANA"], "selected_users", ["U0BEN", "U0ANA"]),
    ("where", "C0RANDOM", "selected_conversation", "C0RANDOM"),
    ("when", "2026-11-23", "selected_date", "2026-11-23"),
]
WRONG = [
    ("one", "z"),
    ("one", ["a"]),
    ("one", {"value": "a"}),
    ("some", "a"),
    ("some", ["a", "b", "c"]),
    ("boxes", ["a", "z"]),
    ("who", "U0NOBODY"),
    ("whom", ["U0NOBODY"]),
    ("whom", [["U0ANA"]]),
]


class Surface:
    """Clicks of people on the same blocks in a message, in an ephemeral message, in a Home tab or in a modal."""

    def __init__(self, slack, kind, ts):
        self._slack, self._kind, self._ts = slack, kind, ts

    def click(self, name, *choice, **values):
        person = self._slack.as_person(name)
        match self._kind:
            case "home":
                return person.click_home(*choice, **values)
            case "modal":
                return person.click_modal(*choice, **values)
            case _:
                return person.click("general", self._ts, *choice, **values)


async def surface_of(kind, slack, client):
    ts, channel = None, {"channel": "C0GENERAL", "text": "choose", "blocks": BLOCKS}
    match kind:
        case "message":
            ts = (await client.chat_postMessage(**channel))["ts"]
        case "ephemeral":
            ts = (await client.chat_postEphemeral(**channel, user="U0ANA"))["message_ts"]
        case "home":
            await client.views_publish(user_id="U0ANA", view={"type": "home", "blocks": BLOCKS})
        case "modal":
            trigger = slack.workspace.views.issue_trigger("U0ANA")
            view = {"type": "modal", "title": text("Choose"), "submit": text("Go"), "blocks": BLOCKS}
            await client.views_open(trigger_id=trigger, view=view)
    return Surface(slack, kind, ts)


@pytest.fixture(params=["message", "ephemeral", "home", "modal"])
async def kind(request):
    return request.param


@pytest.fixture
async def surface(kind, slack, client):
    return await surface_of(kind, slack, client)


@pytest.fixture
def payload_of(socket):
    async def payload_of(click):
        clicking = asyncio.create_task(click)
        while (frame := await socket.frame())["type"] != "interactive":
            await socket.ack(frame)
        await socket.ack(frame)
        await clicking
        return frame["payload"]

    return payload_of


@pytest.mark.parametrize("kind", ["message", "home"], indirect=True)
@pytest.mark.parametrize("wanted", CHOICES)
async def test_a_choice_sends_what_was_chosen(surface, payload_of, wanted):
    action_id, choice, field, chosen = wanted
    (action,) = (await payload_of(surface.click("ana", action_id, choice)))["actions"]
    assert float(action.pop("action_ts")) > 0
    kind = next(menu["type"] for menu in MENUS if menu["action_id"] == action_id)
    assert action == {"type": kind, "action_id": action_id, "block_id": "menus", field: chosen}


@pytest.mark.parametrize("kind", ["message", "modal"], indirect=True)
@pytest.mark.parametrize(("action_id", "choice"), WRONG)
async def test_a_choice_that_the_element_does_not_offer_is_refused(surface, action_id, choice):
    assert await error_of(surface.click("ana", action_id, choice)) == "invalid_arguments"


async def test_a_click_has_the_values_of_all_inputs_and_keeps_them(surface, kind, payload_of):
    def values_in(payload):
        return payload.get("view", payload)["state"]["values"]

    first = values_in(await payload_of(surface.click("ana", "radio", "b", note="hello", who="U0BEN")))
    assert set(first["menus"]) == {"one", "some", "radio", "boxes", "who", "whom", "where", "when"}
    assert first["menus"]["radio"] == {"type": "radio_buttons", "selected_option": OPTIONS[1]}
    assert first["menus"]["one"]["selected_option"] == OPTIONS[0]
    assert first["menus"]["who"]["selected_user"] == "U0BEN"
    assert first["menus"]["boxes"]["selected_options"] == OPTIONS[:1]
    assert first["note"]["note"] == {"type": "plain_text_input", "value": "hello"}
    second = await payload_of(surface.click("ana", "go"))
    assert values_in(second) == first
    assert second["actions"][0]["value"] == "1"


@pytest.mark.parametrize("note", ["x", "too long"])
async def test_a_text_of_the_wrong_length_is_refused(surface, note):
    assert await error_of(surface.click("ana", "go", note=note)) == "invalid_input"


async def test_a_click_on_what_another_person_sees_is_refused(surface, kind):
    expected = {"message": "no_such_action", "ephemeral": "message_not_found", "home": "not_found", "modal": "no_modal"}
    assert await error_of(surface.click("ben", "drop")) == expected[kind]
    assert await error_of(surface.click("ana", "nothing")) == "no_such_action"


async def test_a_click_in_a_view_names_the_view_and_no_channel(slack, client, payload_of):
    for kind in ("home", "modal"):
        payload = await payload_of((await surface_of(kind, slack, client)).click("ana", "go"))
        view = slack.as_person("ana").home if kind == "home" else slack.as_person("ana").modal
        assert payload["container"] == {"type": "view", "view_id": view.id}
        assert (payload["view"]["id"], payload["view"]["type"]) == (view.id, kind)
        assert not {"channel", "message", "response_url", "state"} & payload.keys()
        opened = {"type": "modal", "title": text("Why"), "blocks": []}
        assert (await client.views_open(trigger_id=payload["trigger_id"], view=opened))["ok"]


async def test_the_values_of_a_person_are_not_those_of_another(client, slack, payload_of):
    surface = await surface_of("message", slack, client)
    await payload_of(surface.click("ana", "radio", "b"))
    payload = await payload_of(surface.click("ben", "go"))
    assert payload["state"]["values"]["menus"]["radio"]["selected_option"] is None


@pytest.mark.parametrize(("choice", "words"), [("bad", "Bad"), (None, "Good")])
async def test_feedback_has_the_value_of_its_button(client, slack, payload_of, choice, words):
    surface = await surface_of("message", slack, client)
    (action,) = (await payload_of(surface.click("ana", "rate", choice)))["actions"]
    assert (action["type"], action["value"], action["text"]["text"]) == ("feedback_buttons", words.lower(), words)
