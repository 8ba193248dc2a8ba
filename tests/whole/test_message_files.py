"""Files that people send are read with their message, also if a process is killed."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from anthropic_server import Gate, text
from PIL import Image
from pypdf import PdfWriter
from scenario import Scenario

from local_slack import DropBeforeCall, ServerError

WITHIN_S = 30.0
NOTES = b"Launch on 3 May."


def png() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(out, "PNG")
    return out.getvalue()


def pdf() -> bytes:
    out, writer = io.BytesIO(), PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(out)
    return out.getvalue()


async def share(there: Scenario, files: dict[str, bytes], said: str) -> str:
    """Post a message with files, in the thread or as its beginning."""
    ts = await there.ana.share("general", files, said, thread=there.root or None)
    there.root = there.root or ts
    return ts


def blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of people's messages in a request, without marks of the prompt cache."""
    found = [block for m in body["messages"] if m["role"] == "user" for block in m["content"]]
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in found]


def stored(folder) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.rglob("files/*/files/*/*")}


async def test_the_model_reads_texts_sees_images_and_knows_where_files_are(serving, tmp_path):
    async with serving() as there:
        there.model.reply(text("Read."))
        await share(there, {"notes.txt": NOTES, "red.png": png(), "plan.pdf": pdf()}, "@alpha look")
        await there.sees("Read.")
        said, image = blocks(there.model.bodies[-1])
        assert [line.strip() for line in said["text"].splitlines() if line.strip()][:3] == [
            "Ana (U0ANA), with files notes.txt, red.png, plan.pdf: look",
            "(notes.txt: text/plain, 16 bytes, 1 line, stored at files/F0LOCAL0001/notes.txt)",
            "> Launch on 3 May.",
        ]
        assert "red.png: image/png, " in said["text"]
        assert "1 page, no text, probably scanned" in said["text"]
        assert base64.b64decode(image["source"]["data"]) == png()
        assert stored(tmp_path) == {"notes.txt": NOTES, "red.png": png(), "plan.pdf": pdf()}


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_a_process_that_is_killed_during_a_download_leaves_it_to_the_next(serving, store, tmp_path):
    async with serving(store) as there:
        hold = there.hold("download")
        await share(there, {"notes.txt": NOTES, "red.png": png()}, "@alpha look")
        await hold.reached.wait()
        there.model.reply(text("Read once."))
        await there.kill()
        await there.sees("Read once.")
        assert await there.final_texts() == ["Read once."]
        said, image = blocks(there.model.bodies[-1])
        assert "> Launch on 3 May." in said["text"]
        assert image["type"] == "image"
        assert len(there.model.bodies) == 1
        assert stored(tmp_path) == {"notes.txt": NOTES, "red.png": png()}


async def test_a_message_with_files_is_read_once_though_the_process_is_killed_during_the_answer(serving):
    silent = Gate()
    async with serving() as there:
        there.model.reply(silent, text("too late"))
        await share(there, {"notes.txt": NOTES, "red.png": png()}, "@alpha look")
        await silent.reached.wait()
        there.model.reply(text("Read."))
        await there.kill()
        await there.sees("Read.")
        assert await there.final_texts() == ["Read."]
        assert blocks(there.model.bodies[0]) == blocks(there.model.bodies[-1])


async def test_a_file_that_is_sent_during_a_run_is_injected_with_its_message(serving):
    silent = Gate()
    async with serving() as there:
        there.model.reply(silent, text("First."))
        await there.say("@alpha begin")
        await silent.reached.wait()
        ts = await share(there, {"notes.txt": NOTES, "red.png": png()}, "and this")
        await there.sees_mark(ts, "incoming_envelope")
        there.model.reply(text("Second."))
        silent.open()
        await there.sees("Second.")
        *_, said, image = blocks(there.model.bodies[-1])
        assert "Ana (U0ANA), with files notes.txt, red.png: and this" in said["text"]
        assert "> Launch on 3 May." in said["text"]
        assert image["type"] == "image"


@pytest.mark.parametrize("fault", [DropBeforeCall(), ServerError(503)], ids=["dropped", "503"])
async def test_a_download_that_fails_is_repeated(serving, fault):
    async with serving() as there:
        there.slack.faults.next("download", fault)
        there.model.reply(text("Read."))
        await share(there, {"notes.txt": NOTES}, "@alpha look")
        await there.sees("Read.")
        assert "> Launch on 3 May." in blocks(there.model.bodies[-1])[0]["text"]


async def test_a_login_page_is_refused_and_the_author_and_the_model_hear_the_scope(serving, tmp_path):
    async with serving(lacks_scope="files:read") as there:
        there.model.reply(text("I cannot read it."))
        await share(there, {"notes.txt": NOTES}, "@alpha look")
        await there.sees("An administrator can add the scope `files:read` to the app.")
        await there.sees("I cannot read it.")
        assert "files:read" in blocks(there.model.bodies[-1])[0]["text"]
        assert stored(tmp_path) == {}


async def test_the_files_of_a_message_that_was_deleted_are_not_read_again_for_the_report(serving):
    async with serving() as there:
        for answer in ("Hello.", "Read.", "Gone."):
            there.model.reply(text(answer))
        await there.say("@alpha hello")
        await there.sees("Hello.")
        ts = await share(there, {"notes.txt": NOTES}, "look")
        await there.sees("Read.")
        await there.ana.delete("general", ts)
        await there.say("so?")
        await there.sees("Gone.")
        read = "".join(each.get("text", "") for each in blocks(there.model.bodies[-1]))
        assert "(I have deleted my earlier message:) look" in read
        assert read.count("stored at") == 1
