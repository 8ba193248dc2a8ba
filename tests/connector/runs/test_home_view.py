"""The Home tab is valid for Slack with any content."""

from __future__ import annotations

from dataclasses import replace

from slack_sdk.web.async_client import AsyncWebClient

from connector.events import SlackMessage
from connector.protocols import AlwaysRule, EndedRun, Instance, Persona, PersonRequest, Usage
from connector.records import PendingMessage, RequestRecord, RunRecord
from connector.runs.home_view import Active, Asked, HomeContent, Recent, home_view
from local_slack import LocalSlack

NASTY = "<!channel> & <@U0BEN|x> *|* ```" + "ü" * 5000 + "\n> x\n"


def content(count):
    """Return a tab with so much of everything, and texts that look like markup."""
    place = "T0LOCAL:C0GENERAL:1700000000.000100"
    message = SlackMessage("T0LOCAL", "C0GENERAL", "1700000000.000100", None, "U0ANA", NASTY, (), direct=False)
    run = RunRecord("r1", PendingMessage(message, "alpha", NASTY, "m1"), was_waiting=False, newest_ts=message.ts)
    requests = [
        PersonRequest(f"call-{number % 2}", "d", NASTY, NASTY[:1000], NASTY[:200], tuple(NASTY[:90] for _ in range(5)))
        for number in range(count)
    ]
    asked = tuple(
        Asked(place, run, RequestRecord(f"key{number % 2}", each, 1.8e9)) for number, each in enumerate(requests)
    )
    multiple = PersonRequest("q", "d", NASTY, options=("a", "b"), is_approval=False, is_multiple=True)
    return HomeContent(
        bot_user="U0BOT",
        url="https://local.slack.com/",
        now_s=1.79e9,
        active=tuple(Active(place, NASTY, 1.7e9, f"r{number}" if number % 2 else "") for number in range(count)),
        asked=(*asked[: count // 2], *(Asked(place, run, RequestRecord("k", multiple, 1.8e9)),) * min(count, 1)),
        rules=tuple(AlwaysRule(f"a{number}", NASTY[:500], "gone", place) for number in range(count)),
        recent=tuple(Recent("T0LOCAL:D0ANA:dm", NASTY, "alpha", 1.7e9) for _ in range(min(count, 10))),
        ended=tuple(
            EndedRun(f"{number}", place, "alpha", 1.7e9, 1.79e9, "success", Usage(10**9, 10**9, 0.01))
            for number in range(count)
        ),
        instances=tuple(Instance(f"a{number}", Persona(NASTY[:80], ":owl:")) for number in range(count)),
    )


async def test_slack_accepts_the_tab_with_any_amount_of_any_text():
    async with LocalSlack() as slack:
        client = AsyncWebClient(slack.bot_token, base_url=slack.api_url)
        for count in (0, 1, 5, 40):
            view = home_view(content(count))
            assert len(view["blocks"]) <= 100
            await client.views_publish(user_id=slack.person("ana").id, view=view)
            shown = slack.as_person("ana").home
            assert len(shown.content["blocks"]) == len(view["blocks"])


def test_a_person_who_takes_no_part_reads_the_request_and_not_the_conversation():
    whole = content(2)
    (asked, *_) = whole.asked
    request = replace(asked.request, request=PersonRequest("q", "d", "Which one?", options=("a", "b"), person="U0BEN"))
    tab = replace(whole, active=(), recent=(), rules=(), ended=())
    shown = [
        str(home_view(replace(tab, asked=(Asked(asked.conversation_id, asked.run, request, is_reader=each),))))
        for each in (True, False)
    ]
    assert all("Which one?" in each for each in shown)
    assert ["archives" in each for each in shown] == [True, False]


def test_what_is_left_out_is_counted():
    shown = str(home_view(content(40)))
    assert "30 more." in shown  # 10 are shown
    assert "13 more. Write `!approvals` in a thread." in shown
    assert "40 runs, 40,000,000,000 tokens read" in shown
