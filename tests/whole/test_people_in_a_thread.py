"""Several people and one agent in a thread, on the page of the local Slack: each policy in a channel of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from anthropic_server import AnthropicServer, Gate, text
from chromium import connected_to
from playwright.async_api import Locator, expect
from slack_environment import SlackEnvironment
from slack_page import SlackPage

from local_slack import LocalSlack

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

EYES, ENVELOPE, MUTE = "eyes", "incoming_envelope", "mute"
PEOPLE = ("ana", "ben", "chloe", "eve")
POLICIES = {
    "mention": "answer: mention",
    "thread": "answer: thread",
    "every": "answer: every, keywords: [alert]",
    "owner": "steer: owner",
    "participants": "steer: participants",
    "anyone": "steer: anyone",
    "consent": "consent: ask",
    "mute": "{}",
    "talk": "{}",
}


@dataclass
class Scene:
    page: SlackPage
    model: AnthropicServer

    async def begin(self, channel: str, who: str, said: str, *replies: str | Gate) -> None:
        """Post the first message of a thread, and script the agent's answer to it."""
        await self.page.by(f"channel-{channel}").click()
        await self.page.become(who)
        if replies:
            self.model.reply(text(*replies))
        await self.page.write(self.page.channel, said)

    async def say(self, who: str, said: str) -> Locator:
        """Reply in the open thread."""
        await self.page.become(who)
        await self.page.write(self.page.thread, said)
        return await self.page.see(self.page.thread, said)

    async def shows(self, *messages: str) -> None:
        """Wait until the thread has these messages, as `author: text`, and no run is shown."""
        found = self.page.by("message", self.page.thread)
        await expect(found.locator(".author")).to_have_text([message.partition(": ")[0] for message in messages])
        await expect(self.page.by("message-text", found)).to_have_text([each.partition(": ")[2] for each in messages])
        await expect(self.page.by("reaction-hourglass_flowing_sand")).to_have_count(0)

    async def has(self, said: str, *reactions: str) -> None:
        """Wait until a message of the thread has these reactions, or none; 👀 only if it is given."""
        for name in reactions:
            await self.page.see_reaction(self.page.thread, said, name)
        others = "[data-testid=reaction-eyes]" if reactions else ".reaction"
        if EYES not in reactions:
            await expect(self.page.message(self.page.thread, said).first.locator(others)).to_have_count(0)

    @property
    def read(self) -> str:
        """The text of the last message that the model got."""
        content = self.model.bodies[-1]["messages"][-1]["content"]
        return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(chromium_address: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("people")
    channels = "".join(f"  C0{name.upper()}: {{{policy.strip('{}')}}}\n" for name, policy in POLICIES.items())
    config = folder / "agents.yaml"
    config.write_text(
        f"instances:\n  alpha: {{persona: {{name: Alpha, emoji: ':owl:'}}}}\nchannels:\n{channels}"
        f"slack: {{rate_scale: 1000, feedback: false}}\nworkspace: {{root: {folder}/files}}\n"
        f"store: sqlite:{folder}/kept.db\n"
    )
    async with (
        LocalSlack(channels=tuple(POLICIES), people=PEOPLE, kinds={"eve": "external"}, limits=None) as slack,
        AnthropicServer() as model,
        SlackEnvironment.of(slack, folder).serving("--config", str(config), **model.env) as service,
        connected_to(chromium_address) as browser,
    ):
        await service.says("service.ready")
        yield Scene(await SlackPage.open(browser, slack.url), model)


async def test_by_the_policy_mention_a_reply_needs_a_mention(scene):
    await scene.begin("mention", "ana", "@alpha hello", "Hello.")
    await scene.shows("Ana: @alpha hello", "Alpha: Hello.")
    await scene.say("ana", "and now?")
    scene.model.reply(text("Now I continue."))
    await scene.say("ana", "@alpha continue")
    await scene.shows(
        "Ana: @alpha hello", "Alpha: Hello.", "Ana: and now?", "Ana: @alpha continue", "Alpha: Now I continue."
    )
    await scene.has("and now?")
    await scene.page.screenshot("people-1-mention")


async def test_by_the_policy_thread_people_who_take_part_are_answered(scene):
    await scene.begin("thread", "ana", "@alpha hello", "Hello.")
    await scene.shows("Ana: @alpha hello", "Alpha: Hello.")
    await scene.say("ben", "lunch?")
    scene.model.reply(text("Now I continue."))
    await scene.say("ana", "and now?")
    await scene.shows("Ana: @alpha hello", "Alpha: Hello.", "Ben: lunch?", "Ana: and now?", "Alpha: Now I continue.")
    assert "lunch?" in scene.read
    await scene.page.screenshot("people-2-thread")


async def test_by_the_policy_every_a_message_of_the_channel_that_has_a_keyword_is_answered(scene):
    await scene.begin("every", "chloe", "good morning")
    await scene.begin("every", "ben", "alert: the disk is full", "I look at the disk.")
    await scene.shows("Ben: alert: the disk is full", "Alpha: I look at the disk.")
    await expect(scene.page.by("thread-summary", scene.page.channel)).to_have_count(1)
    await scene.page.screenshot("people-3-every")


@pytest.mark.parametrize(
    ("channel", "remark", "steers"),
    [
        ("owner", "@alpha use postgres", False),
        ("participants", "@alpha use postgres", True),
        ("participants", "use postgres", None),
        ("anyone", "use postgres", True),
    ],
    ids=str,
)
async def test_the_policy_says_whose_messages_a_run_reads(scene, channel, remark, steers):
    """`None`: the remark is talk, which gets no reaction."""
    planning, writing = Gate(), Gate()
    await scene.begin(channel, "ana", "@alpha plan it", "I plan. ", planning, "First draft.")
    await planning.reached.wait()
    await scene.page.see(scene.page.thread, "⚙️")
    await scene.say("ben", remark)
    await scene.say("ana", "and the tests")
    await scene.has("and the tests", ENVELOPE)
    await scene.has(remark, *(() if steers is None else (ENVELOPE,)))
    scene.model.reply(text(writing, "Planned."))
    if steers is False:
        scene.model.reply(text("On postgres, then."))
    planning.open()
    await writing.reached.wait()
    await scene.has("and the tests", EYES)
    await scene.has(remark, *{True: (EYES,), False: (ENVELOPE,), None: ()}[steers])
    assert ("use postgres" in scene.read) is (steers is not False)
    await scene.page.screenshot(f"people-4-steer-{channel}-{steers}")
    writing.open()
    await scene.page.see(scene.page.thread, "On postgres, then." if steers is False else "Planned.")
    await expect(scene.page.by("reaction-hourglass_flowing_sand")).to_have_count(0)


async def test_the_owner_of_a_run_decides_by_a_button_whether_another_person_steers(scene):
    planning, writing = Gate(), Gate()
    await scene.begin("consent", "ana", "@alpha plan it", "I plan. ", planning, "First draft.")
    await planning.reached.wait()
    await scene.page.see(scene.page.thread, "⚙️")
    await scene.say("ben", "@alpha use postgres")
    await scene.has("use postgres", ENVELOPE)
    question = await scene.page.see(scene.page.thread, "Let Ben steer this run?")
    await scene.page.by("action-steer_allow", question).click()
    await scene.page.see(scene.page.thread, "Only the person who began")
    await scene.page.screenshot("people-5-consent-asked")
    await scene.page.become("ana")
    await scene.page.by("action-steer_allow", question).click()
    await scene.page.see(scene.page.thread, "Ana lets Ben steer")
    scene.model.reply(text(writing, "Planned on postgres."))
    planning.open()
    await writing.reached.wait()
    await scene.has("use postgres", EYES)
    await scene.page.screenshot("people-6-consent-given")
    writing.open()
    await scene.page.see(scene.page.thread, "Planned on postgres.")


async def test_a_muted_thread_answers_mentions_only(scene):
    await scene.begin("mute", "ana", "@alpha hello", "Hello.")
    await scene.page.see(scene.page.thread, "Hello.")
    mute = await scene.say("ana", "!mute")
    await scene.has("!mute", MUTE)
    chip = scene.page.by(f"reaction-{MUTE}", mute)
    await expect(chip).to_have_text("🔇1")
    for count, pressed in ((2, "true"), (1, "false")):
        await chip.click()
        await expect(chip).to_have_attribute("aria-pressed", pressed)
        await expect(chip).to_have_attribute("data-count", str(count))
    await scene.say("ana", "we two talk")
    scene.model.reply(text("You two talk."))
    await scene.say("ana", "@alpha summarise")
    await scene.page.see(scene.page.thread, "You two talk.")
    await scene.has("we two talk")
    await scene.page.screenshot("people-7-mute")
    await scene.say("ana", "!unmute")
    await scene.has("!mute")
    scene.model.reply(text("I am here again."))
    await scene.say("ana", "continue")
    await scene.page.see(scene.page.thread, "I am here again.")
    await scene.page.screenshot("people-8-unmute")


async def test_a_mention_in_the_middle_of_a_thread_brings_the_talk_before_it(scene):
    await scene.begin("talk", "ben", "the build is red")
    await scene.page.message(scene.page.channel, "the build is red").hover()
    await scene.page.by("open-thread", scene.page.channel).click()
    await scene.say("chloe", "since friday")
    scene.model.reply(text("A flaky test, since Friday."))
    await scene.say("ana", "@alpha why?")
    await scene.shows(
        "Ben: the build is red", "Chloe: since friday", "Ana: @alpha why?", "Alpha: A flaky test, since Friday."
    )
    _, build, friday, prompt = scene.read.splitlines()
    assert (build[:14], build[-16:]) == ("- Ben (U0BEN),", "the build is red")
    assert friday.endswith(": since friday")
    assert prompt == "Ana (U0ANA): why?"
    await scene.page.screenshot("people-9-talk")


async def test_a_person_of_another_workspace_is_marked_and_refused(scene):
    await scene.begin("talk", "eve", "@alpha hello from outside")
    notice = await scene.page.see(scene.page.channel, "I work for the people of another workspace only.")
    await expect(notice).to_contain_text("Only visible to you")
    asked = scene.page.message(scene.page.channel, "hello from outside")
    await expect(asked.locator(".heading .tag")).to_have_text("external")
    await expect(asked.locator(".reaction")).to_have_count(0)
    await scene.page.screenshot("people-10-external")
