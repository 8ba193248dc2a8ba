"""Home tabs and modals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.errors import SlackApiError

from local_slack import LocalSlack

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

HOME: dict[str, Any] = {"type": "home", "blocks": [{"type": "divider"}]}
MODAL: dict[str, Any] = {
    "type": "modal",
    "title": {"type": "plain_text", "text": "Ask"},
    "blocks": [
        {
            "type": "input",
            "label": {"type": "plain_text", "text": "What"},
            "element": {"type": "plain_text_input", "action_id": "what"},
        }
    ],
}


async def test_a_home_tab_is_each_persons_own(slack: LocalSlack, client: AsyncWebClient) -> None:
    first = (await client.views_publish(user_id="U0ANA", view=HOME))["view"]
    again = (await client.views_publish(user_id="U0ANA", view={**HOME, "blocks": []}, hash=first["hash"]))["view"]
    assert again["id"] == first["id"]
    with pytest.raises(SlackApiError, match="hash_conflict"):
        await client.views_publish(user_id="U0ANA", view=HOME, hash=first["hash"])
    home = slack.workspace.views.home("U0ANA")
    assert home is not None
    assert home.content["blocks"] == []
    assert slack.workspace.views.home("U0BEN") is None


async def test_a_modal_opens_once_per_trigger(slack: LocalSlack, client: AsyncWebClient) -> None:
    trigger = slack.workspace.triggers.issue("U0ANA")
    view = (await client.views_open(trigger_id=trigger, view=MODAL))["view"]
    assert [(v.user, v.type) for v in slack.workspace.views.all] == [("U0ANA", "modal")]
    await client.views_update(view_id=view["id"], view={**MODAL, "private_metadata": "x"})
    assert slack.workspace.views.all[0].content["private_metadata"] == "x"
    with pytest.raises(SlackApiError, match="trigger_exchanged"):
        await client.views_open(trigger_id=trigger, view=MODAL)
    with pytest.raises(SlackApiError, match="invalid_trigger_id"):
        await client.views_open(trigger_id="1.2.3", view=MODAL)


async def test_a_trigger_expires(slack: LocalSlack) -> None:
    now = [0.0]
    async with LocalSlack(clock=lambda: now[0]) as there:
        trigger = there.workspace.triggers.issue("U0ANA")
        now[0] += 3.1
        with pytest.raises(Exception, match="expired_trigger_id"):
            there.workspace.triggers.take(trigger)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"type": "home"}, "must provide an array [json-pointer:/view/blocks]"),
        ({"type": "tab", "blocks": []}, "must be a valid enum value [json-pointer:/view/type]"),
        (
            {"type": "home", "blocks": [{"type": "x"}]},
            "unsupported type: x [json-pointer:/view/blocks/0/type]",
        ),
        (MODAL, "must be of type home [json-pointer:/view/type]"),
    ],
)
async def test_a_wrong_view_is_refused(client: AsyncWebClient, view: dict[str, Any], message: str) -> None:
    with pytest.raises(SlackApiError) as refused:
        await client.views_publish(user_id="U0ANA", view=view)
    answer = refused.value.response
    assert answer["error"] == "invalid_arguments"
    assert f"[ERROR] {message}" in answer["response_metadata"]["messages"]
