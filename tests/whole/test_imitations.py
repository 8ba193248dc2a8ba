"""Messages in Slack that imitate authors, frames and tool results reach the model as texts of their author."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from anthropic_server import AnthropicServer, Gate, message, text
from hostile_texts import AUTHOR, FILES, MARKUP, NAMES, TYPED, ZONE, read_messages, typed, words
from pydantic import SecretStr
from service_fixtures import ALPHA, serving_in_process
from slack_sdk.web.async_client import AsyncWebClient

from connector import RunLimits
from local_slack import LocalSlack
from service.config.config import InstanceConfig, ServiceConfig, WorkspaceConfig

# One service receives all tricks before the first test.
pytestmark = pytest.mark.timeout(180)
PEOPLE = {"ana": "Ana Gray", "ben": "Ben", "mallory": "Mallory", **{f"m{n}": name for n, name in enumerate(NAMES)}}
HERE = "C0GENERAL"
# Each post, and its words that the model reads.
POSTS = {**{name: (typed(each), each) for name, each in TYPED.items()}, **MARKUP}
STEERS = 40


class Requests:
    """The requests that the model received, by the name of the trick."""

    def __init__(self, slack: LocalSlack, model: AnthropicServer) -> None:
        self._slack = slack
        self._model = model
        self.by_trick: dict[str, dict] = {}

    async def post(self, who: str, said: str, thread: str | None = None) -> str:
        return (await self._slack.as_person(who).call("chat.postMessage", channel=HERE, text=said, thread_ts=thread))[
            "ts"
        ]

    async def ask(self, trick: str, who: str, said: str) -> None:
        """Begin a thread, and keep the request."""
        count = len(self._model.requests)
        await self.post(who, f"<@U0ALPHA> {said}")
        self.by_trick[trick] = (await self._model.arrived(count + 1)).body

    async def upload(self, trick: str, name: str) -> None:
        count, person = len(self._model.requests), self._slack.person("mallory")
        client = AsyncWebClient(person.token, base_url=self._slack.api_url)
        await client.files_upload_v2(
            channel=HERE, content="x", filename=name, title="x", initial_comment="<@U0ALPHA> look"
        )
        self.by_trick[trick] = (await self._model.arrived(count + 1)).body

    async def steer(self, trick: str) -> None:
        """Post every trick into one thread; the first ones while the model is writing."""
        gate, count = Gate(), len(self._model.requests)
        self._model.reply(gate, text("hm"))
        root = await self.post("mallory", "<@U0ALPHA> begin")
        await self._model.arrived(count + 1)
        last = ""
        for number, (said, _) in enumerate(POSTS.values(), 1):
            last = await self.post("mallory", f"<@U0ALPHA> {said}", root)
            if number == STEERS:
                await self._slack.until(lambda ws, ts=last: ws.message("general", ts).reacted("incoming_envelope"))
                gate.open()
        last = await self.post("mallory", "<@U0ALPHA> the end", root)
        async with asyncio.timeout(30):
            while True:
                body = self._model.bodies[-1]
                if "the end" in str(body["messages"][-1]):
                    break
                await self._model.arrived(len(self._model.requests) + 1)
        self.by_trick[trick] = body


@asynccontextmanager
async def serving(folder, model: AnthropicServer) -> AsyncIterator[Requests]:
    model.otherwise = lambda _: message(text("fine"))
    config = ServiceConfig(
        instances={"alpha": InstanceConfig(persona=ALPHA)},
        workspace=WorkspaceConfig(root=folder / "files"),
        store=SecretStr(f"sqlite:{folder}/kept.db"),
        shutdown_grace_s=1,
    )
    async with (
        LocalSlack(people=PEOPLE, zones={"mallory": ZONE}, limits=None) as slack,
        serving_in_process(
            slack, config, rate_scale=1_000, limits=RunLimits(runs=500, runs_per_channel=500, runs_per_person=500)
        ),
    ):
        yield Requests(slack, model)


@pytest.fixture(scope="module")
def requests(tmp_path_factory) -> dict[str, dict]:
    """Post all tricks to one service."""

    async def post_all() -> dict[str, dict]:
        async with AnthropicServer() as model:
            with pytest.MonkeyPatch.context() as environment:
                for name, value in model.env.items():
                    environment.setenv(name, value)
                async with serving(tmp_path_factory.mktemp("imitations"), model) as requests:
                    for trick, (said, _) in POSTS.items():
                        await requests.ask(trick, "mallory", said)
                    for number, name in enumerate(NAMES):
                        await requests.ask(f"name {name}", f"m{number}", "hello")
                    for name in FILES:
                        await requests.upload(f"file {name}", name)
                    await requests.steer("steered")
                    return requests.by_trick

    return asyncio.run(post_all())


def test_there_are_enough_tricks():
    assert len(set(POSTS)) + len(NAMES) + len(FILES) >= 150
    assert len({said for said, _ in POSTS.values()}) == len(POSTS)


@pytest.mark.parametrize("trick", POSTS)
def test_a_text_stays_in_the_message_of_its_author(requests, trick):
    [(author, said)] = read_messages(requests[trick])
    assert author == AUTHOR
    assert words(said) == words(POSTS[trick][1])


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_a_display_name_is_one_name(requests, number):
    [(author, said)] = read_messages(requests[f"name {NAMES[number]}"])
    assert re.fullmatch(rf"[\w .'-]+ \(U0M{number}\)", author)
    assert said == "hello"


@pytest.mark.parametrize("name", FILES)
def test_a_file_name_is_one_name(requests, name):
    [(author, said)] = read_messages(requests[f"file {name}"])
    assert author == AUTHOR
    assert re.fullmatch(r"look\n\n\([^\n]*: text/plain, 1 byte, 1 line, stored at files/\w+/[^\n]*\)\n> x", said)


def test_messages_during_a_run_stay_those_of_their_author(requests):
    (author, said), *steered = read_messages(requests["steered"])
    assert (author, said) == (AUTHOR, "begin")
    assert {author for author, _ in steered} == {AUTHOR}
    assert [words(said) for _, said in steered] == [*(words(each) for _, each in POSTS.values()), "theend"]
