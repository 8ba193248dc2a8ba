"""Posts of other apps, forwarded messages and code snippets, as the app under test gets them."""

from __future__ import annotations

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack, PerMinute, ServerError, SlackRefused

pytestmark = pytest.mark.slack(apps=("alerts", "ci"))
BLOCKS = [{"type": "header", "text": {"type": "plain_text", "text": "Disk full"}}]


@pytest.fixture
def alerts(slack):
    return slack.as_app("alerts")


async def test_a_post_of_another_app_names_its_bot(alerts, bot):
    ts = await alerts.post("general", attachments=[{"title": "Disk full"}])
    event = await bot.event(lambda each: each["ts"] == ts)
    names = {"id": "B0ALERTS", "app_id": "A0ALERTS", "user_id": "U0ALERTS", "name": "Alerts"}
    assert (event["user"], event["bot_id"], event["app_id"]) == ("U0ALERTS", "B0ALERTS", "A0ALERTS")
    assert event["bot_profile"].items() >= names.items()
    assert ("subtype" in event, event["text"]) == (False, "")
    assert event["attachments"] == [{"id": 1, "fallback": "[no preview available]", "title": "Disk full"}]
    ts = await alerts.post("general", blocks=BLOCKS, username="Grafana", thread=ts)
    event = await bot.event(lambda each: each["ts"] == ts)
    assert (event["subtype"], event["username"]) == ("bot_message", "Grafana")


async def test_a_mention_by_another_app_names_its_bot_too(alerts, bot):
    await alerts.post("general", "<@U0ALPHA> look")
    mention = await bot.event(lambda each: each["type"] == "app_mention")
    assert (mention["bot_id"], mention["bot_profile"]["name"]) == ("B0ALERTS", "Alerts")


@pytest.mark.slack(scopes={"users:read"}, limits={"chat.postMessage": (PerMinute(1),)})
async def test_limits_scopes_and_faults_are_those_of_the_app_under_test(slack, alerts, client):
    slack.faults.next("chat.postMessage", ServerError(503))
    for text in ("one", "two"):
        await alerts.post("general", text)
    assert slack.faults.pending("chat.postMessage") == 1
    with pytest.raises(SlackRefused, match="cant_update_message"):
        await alerts.call(
            "chat.update", channel="C0GENERAL", ts=await slack.as_person("ana").say("general", "x"), text="y"
        )
    assert (await client.bots_info(bot="B0CI"))["bot"]["name"] == "Ci"
    assert (await client.users_info(user="U0ALERTS"))["user"]["is_bot"]


async def test_the_names_of_other_apps_are_looked_up_and_differ():
    with pytest.raises(ValueError, match="same id"):
        LocalSlack(apps=("ana",))
    async with LocalSlack(apps=("ci",)) as slack:
        token = slack.workspace.directory.app("ci").token
        assert (await AsyncWebClient(token, slack.api_url).auth_test())["bot_id"] == "B0CI"
        with pytest.raises(KeyError, match="there are ci"):
            slack.as_app("alpha")


async def test_a_forward_has_the_message_with_its_author_channel_and_time(slack, alerts, ana, bot):
    alert = await alerts.post("general", blocks=BLOCKS)
    ts = await ana.forward("general", alert, "random", "@alpha what now?")
    event = await bot.event(lambda each: each["ts"] == ts and each["type"] == "message")
    assert (event["text"], event["channel"], event["user"]) == ("<@U0ALPHA> what now?", "C0RANDOM", "U0ANA")
    (shared,) = event["attachments"]
    link = (await ana.call("chat.getPermalink", channel="C0GENERAL", message_ts=alert))["permalink"]
    wanted = {"is_share": True, "is_msg_unfurl": True, "from_url": link, "author_id": "U0ALERTS", "ts": alert}
    wanted |= {"author_subname": "Alerts", "channel_id": "C0GENERAL", "footer": "Posted in #general"}
    assert shared.items() >= wanted.items()
    assert shared["message_blocks"][0]["message"]["blocks"][0]["text"]["text"] == "Disk full"


async def test_a_reply_is_forwarded_to_a_member_and_into_a_thread(slack, ana):
    root = await ana.say("general", "root")
    reply = await ana.say("general", "a *reply*", thread=root)
    await ana.forward("general", reply, "ben")
    direct = next(channel for channel in slack.workspace.channels if channel.is_im)
    assert set(direct.members) == {"U0ANA", "U0BEN"}
    (shared,) = slack.workspace.messages(direct.id)[0].body.attachments
    assert (shared["text"], shared["footer"]) == ("a *reply*", "From a thread in #general")
    ts = await ana.forward("general", reply, "random", thread=await ana.say("random", "here"))
    assert slack.workspace.message("random", ts).is_reply
    await ana.delete("general", root)
    for gone in (root, "1.0"):
        with pytest.raises(SlackRefused, match="message_not_found"):
            await ana.forward("general", gone, "random")


async def test_a_code_snippet_has_its_first_lines(ana, bot):
    await ana.snippet("general", "a.py", "\n".join(map(str, range(12))), "@alpha look")
    event = await bot.event(lambda each: each.get("files"))
    (file,) = event["files"]
    assert (event["text"], file["name"], file["mode"], file["filetype"]) == (
        "<@U0ALPHA> look",
        "a.py",
        "snippet",
        "python",
    )
    assert (file["preview"].split(), file["lines"], file["lines_more"]) == ([str(n) for n in range(10)], 12, 2)
