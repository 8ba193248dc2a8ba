"""What the thread shows of trouble with the model, from the real command with the offline demo in it."""

from __future__ import annotations

import re

import pytest

BUSY = re.compile(r"⚙️ The model's service is busy; trying again in \d s \(1 of 3\)…")


@pytest.fixture
async def asked(slack, stage, tmp_path):
    """Start the service and write this; gives the thread."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "instances: {alpha: {persona: {name: Alpha, emoji: ':owl:'}, "
        "providers: [{module: provider-demo, config: {think_s: 0, word_s: 0}}]}}"
    )
    async with stage.serving("--config", str(config)) as service:
        await service.says("service.ready")

        async def asked(text: str) -> str:
            return await slack.as_person("ana").say("general", f"@alpha {text}")

        yield asked


async def test_a_busy_service_is_told_and_a_message_written_meanwhile_is_read(slack, stage, asked):
    ts = await asked("demo: rate limit")
    await slack.until(lambda _: any(BUSY.fullmatch(text) for text in stage.said(ts)))
    steer = await slack.as_person("ana").say("general", "what's in roadmap.md?", thread=ts)
    await slack.until(lambda ws: ws.message("general", steer).reacted("eyes"))
    await slack.until(lambda ws: not ws.message("general", ts).reacted("hourglass_flowing_sand"))
    (answer,) = stage.said(ts)
    assert "While I was working you also wrote" in answer


async def test_a_refusal_is_told_with_its_explanation(slack, stage, asked):
    ts = await asked("demo: refuse")
    await slack.until(lambda _: stage.found(ts, "The model declined"))
    await slack.until(lambda ws: not ws.message("general", ts).reacted("hourglass_flowing_sand"))
    (notice,) = stage.said(ts)
    assert notice == (
        "⏸️ The model declined this request. Rephrase it, or start a new thread. "
        "Its explanation: “The demo refuses because you asked for it.”"
    )
