"""Home tabs and modals."""

from __future__ import annotations

import pytest
from slack_errors import error_of
from slack_sdk.errors import SlackApiError

HOME = {"type": "home", "blocks": [{"type": "divider"}]}
MODAL = {
    "type": "modal",
    "title": {"type": "plain_text", "text": "Ask"},
    "submit": {"type": "plain_text", "text": "Go"},
    "blocks": [
        {
            "type": "input",
            "label": {"type": "plain_text", "text": "What"},
            "element": {"type": "plain_text_input", "action_id": "what"},
        }
    ],
}


async def test_each_person_has_a_home_tab(slack, client):
    first = (await client.views_publish(user_id="U0ANA", view=HOME))["view"]
    again = (await client.views_publish(user_id="U0ANA", view={**HOME, "blocks": []}, hash=first["hash"]))["view"]
    assert again["id"] == first["id"]
    assert await error_of(client.views_publish(user_id="U0ANA", view=HOME, hash=first["hash"])) == "hash_conflict"
    assert slack.workspace.views.home("U0ANA").content["blocks"] == []
    assert slack.workspace.views.home("U0BEN") is None


async def test_a_trigger_opens_one_modal_within_three_seconds(slack, client, clock):
    trigger = slack.workspace.views.issue_trigger("U0ANA")
    view = (await client.views_open(trigger_id=trigger, view=MODAL))["view"]
    assert [(v.user, v.type) for v in slack.workspace.views.all] == [("U0ANA", "modal")]
    await client.views_update(view_id=view["id"], view={**MODAL, "private_metadata": "x"})
    assert slack.workspace.views.all[0].content["private_metadata"] == "x"
    old = slack.workspace.views.issue_trigger("U0ANA")
    clock.advance(3.1)
    for id_, error in ((trigger, "exchanged"), ("1.2.3", "invalid"), (old, "expired")):
        assert error in await error_of(client.views_open(trigger_id=id_, view=MODAL))


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"type": "home"}, "must provide an array [json-pointer:/view/blocks]"),
        ({"type": "tab", "blocks": []}, "must be a valid enum value [json-pointer:/view/type]"),
        ({"type": "home", "blocks": [{"type": "x"}]}, "unsupported type: x [json-pointer:/view/blocks/0/type]"),
        (MODAL, "must be of type home [json-pointer:/view/type]"),
    ],
)
async def test_a_wrong_view_is_refused(client, view, message):
    with pytest.raises(SlackApiError) as refused:
        await client.views_publish(user_id="U0ANA", view=view)
    answer = refused.value.response
    assert answer["error"] == "invalid_arguments"
    assert f"[ERROR] {message}" in answer["response_metadata"]["messages"]


async def test_a_modal_with_an_input_needs_a_submit_button(slack, client):
    trigger = slack.workspace.views.issue_trigger("U0ANA")
    assert await error_of(client.views_open(trigger_id=trigger, view={**MODAL, "submit": None})) == "invalid_arguments"


async def test_up_to_three_modals_are_stacked(slack, client):
    def trigger():
        return slack.workspace.views.issue_trigger("U0ANA")

    assert await error_of(client.views_push(trigger_id=trigger(), view=MODAL)) == "not_found"
    views = [(await client.views_open(trigger_id=trigger(), view=MODAL))["view"]]
    views += [(await client.views_push(trigger_id=trigger(), view=MODAL))["view"] for _ in range(2)]
    assert [view["root_view_id"] for view in views] == [views[0]["id"]] * 3
    assert [view["previous_view_id"] for view in views] == [None, views[0]["id"], views[1]["id"]]
    assert slack.workspace.views.modal("U0ANA").id == views[2]["id"]
    assert await error_of(client.views_push(trigger_id=trigger(), view=MODAL)) == "push_limit_reached"
