"""Modals that people submit and close, as a Bolt app sees them."""

from __future__ import annotations

import pytest

from local_slack import SlackRefused


def text(words):
    return {"type": "plain_text", "text": words}


def modal(title, **fields):
    options = [{"text": text(value), "value": value} for value in ("5", "10")]
    menu = {"type": "static_select", "action_id": "count", "options": options, "initial_option": options[0]}
    named = {"type": "plain_text_input", "action_id": "name"}
    return {
        "type": "modal",
        "callback_id": "ask",
        "title": text(title),
        "submit": text("Go"),
        "blocks": [
            {"type": "input", "block_id": "count", "label": text("Count"), "element": menu},
            {"type": "input", "block_id": "name", "label": text("Name"), "element": named},
            {"type": "input", "block_id": "note", "label": text("Note"), "optional": True, "element": named},
        ],
        **fields,
    }


@pytest.fixture
def ask(slack, client):
    async def ask(**fields):
        trigger = slack.workspace.views.issue_trigger("U0ANA")
        await client.views_open(trigger_id=trigger, view=modal("Ask", **fields))

    return ask


@pytest.fixture
def submitted(bot):
    """Answer submissions with the given response; return them."""
    views, response = [], {}

    @bot.app.view("ask")
    async def on_submit(ack, view):
        views.append(view)
        await ack(**response)

    @bot.app.view_closed("ask")
    async def on_close(ack, view):
        views.append({**view, "closed": True})
        await ack()

    return views, response


async def test_a_submission_has_the_values_and_closes_the_modal(slack, ana, ask, submitted):
    views, _ = submitted
    await ask()
    await ana.submit(name="Ana", count="10")
    values = views[0]["state"]["values"]
    assert values["count"]["count"]["selected_option"]["value"] == "10"
    assert values["name"]["name"] == {"type": "plain_text_input", "value": "Ana"}
    assert slack.workspace.views.modal("U0ANA") is None
    with pytest.raises(SlackRefused, match="no_modal"):
        await ana.submit(name="Ana")


async def test_a_required_field_needs_a_value_and_a_menu_has_an_initial_one(slack, ana, ask, submitted):
    views, _ = submitted
    await ask()
    with pytest.raises(SlackRefused, match="missing_value"):
        await ana.submit()
    assert not views
    await ana.submit(name="Ana")
    assert views[0]["state"]["values"]["count"]["count"]["selected_option"]["value"] == "5"


async def test_errors_of_the_app_keep_the_modal_open(slack, ana, ask, submitted):
    _, response = submitted
    await ask()
    response |= {"response_action": "errors", "errors": {"name": "unknown name"}}
    with pytest.raises(SlackRefused, match="invalid_input") as refused:
        await ana.submit(name="X")
    assert refused.value.messages == ("name: unknown name",)
    assert slack.workspace.views.modal("U0ANA") is not None


async def test_the_app_may_replace_the_modal_or_put_another_on_top(slack, ana, ask, submitted):
    _, response = submitted
    await ask()
    response |= {"response_action": "update", "view": modal("Changed")}
    await ana.submit(name="Ana")
    assert slack.workspace.views.modal("U0ANA").content["title"]["text"] == "Changed"
    response |= {"response_action": "push", "view": modal("Second")}
    await ana.submit(name="Ana")
    top = slack.workspace.views.modal("U0ANA")
    assert (top.content["title"]["text"], top.previous is not None) == ("Second", True)
    response.clear()
    response["response_action"] = "clear"
    await ana.submit(name="Ana")
    assert slack.workspace.views.modal("U0ANA") is None


async def test_the_app_is_told_of_a_closed_modal_if_it_asks_for_it(slack, ana, ask, submitted):
    views, _ = submitted
    await ask()
    await ana.close_modal()
    assert views == []
    await ask(notify_on_close=True)
    await ana.close_modal()
    assert views[0]["closed"]
    assert slack.workspace.views.modal("U0ANA") is None


async def test_closing_a_modal_on_top_goes_back_and_clearing_closes_all(slack, ana, ask, submitted):
    views, response = submitted
    response |= {"response_action": "push", "view": modal("Second", notify_on_close=True)}
    await ask(notify_on_close=True)
    await ana.submit(name="Ana")
    await ana.close_modal()
    assert ana.modal.content["title"]["text"] == "Ask"
    await ana.submit(name="Ana")
    views.clear()
    await ana.close_modal(clear=True)
    assert [view["title"]["text"] for view in views] == ["Second", "Ask"]
    assert ana.modal is None


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"count": "7", "name": "Ana"}, "invalid_arguments"),
        ({"count": ["5"], "name": "Ana"}, "invalid_arguments"),
        ({"name": "x" * 3001}, "invalid_input"),
        ({"name": ""}, "missing_value"),
    ],
)
async def test_values_that_the_inputs_do_not_take_are_refused(ana, ask, submitted, values, error):
    await ask()
    with pytest.raises(SlackRefused, match=error):
        await ana.submit(**values)
    assert submitted[0] == []


@pytest.mark.parametrize("body", [{"state": {"name": "Ana"}}, {"values": [1]}, {"view_id": "V0OTHER"}])
async def test_a_malformed_submission_is_refused(slack, session, ask, submitted, body):
    await ask()
    headers = {"Authorization": f"Bearer {slack.person('ana').token}"}
    async with session.post(slack.url + "page/submit_view", json=body, headers=headers) as answer:
        assert (await answer.json())["error"] in {"invalid_arguments", "no_modal"}
    assert submitted[0] == []
