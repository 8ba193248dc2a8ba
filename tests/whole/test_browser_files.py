"""Files on the page: people attach them, the agent reads them, and one that cannot be read is named."""

from __future__ import annotations

import io

import pytest
from anthropic_server import message, text
from PIL import Image, ImageDraw

pytestmark = pytest.mark.browser


@pytest.fixture
async def page(open_page, environment, model):
    async with environment.serving(**model.env) as service:
        await service.says("service.ready")
        yield await open_page(environment.slack.url)


def chart() -> bytes:
    image = Image.new("RGB", (480, 200), "white")
    draw = ImageDraw.Draw(image)
    for place, height in enumerate((60, 90, 140, 120, 170)):
        draw.rectangle((40 + 80 * place, 190 - height, 90 + 80 * place, 190), fill="steelblue")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


async def test_a_person_attaches_files_and_the_agent_answers_about_them(page, model, environment):
    answers = [message(text("Sales grow in four of five months; the notes name 3 May as the launch."))]
    model.otherwise = lambda _: answers.pop(0) if answers else message(text("I cannot read that one."))
    hold = environment.hold("download")
    await page.by("file-input", page.channel).set_input_files(
        [
            {"name": "sales.png", "mimeType": "image/png", "buffer": chart()},
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"Launch on 3 May.\nBen has the slides."},
        ]
    )
    await page.write(page.channel, "@alpha what do these say?")
    await hold.reached.wait()
    await page.see(page.thread, "Downloading")
    await page.screenshot("files-1-download")
    hold.set()
    await page.see(page.thread, "Sales grow in four of five months")
    await page.screenshot("files-2-answer")
    said, image = model.bodies[-1]["messages"][0]["content"]
    assert "> Ben has the slides." in said["text"]
    assert image["type"] == "image"
    await page.by("file-input", page.thread).set_input_files(
        [{"name": "empty.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4 broken"}]
    )
    await page.write(page.thread, "and this one?")
    await page.see(page.thread, "I cannot read “empty.pdf”")
    await page.see(page.thread, "I cannot read that one.")
    await page.screenshot("files-3-refused")
