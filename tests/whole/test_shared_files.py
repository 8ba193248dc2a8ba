"""Files that an agent shares are in its thread once, wherever a process is killed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from anthropic_server import Gate, message, text, tool_call
from scenario import Scenario

from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse, ServerError

GET_URL, COMPLETE, LOOK, UPLOAD = (
    *("files.getUploadURLExternal", "files.completeUploadExternal", "conversations.replies", "upload"),
)
REPORT = "# Report\n\nAll is well.\n"


@pytest.fixture
def serving(serving):
    """Run the service with an agent that can write and share files."""
    return partial(serving, tools=("tool-filesystem", "tool-share-file"))


def shared(there: Scenario) -> list[tuple[str, list[str]]]:
    """The messages with files in the whole workspace: their comments and the names of their files."""
    messages = [each for name in ("general", "random") for each in there.slack.workspace.messages(name)]
    return [(each.text, [file.name for file in each.files]) for each in messages if each.files]


def write(path: str, content: str) -> Any:
    return tool_call("write_file", {"path": path, "content": content})


SHARE = tool_call("share_file", {"paths": ["report.md", "data.csv"], "comment": "Here **they** are, <@U0BEN>."})
SHARED = ("Here *they* are, &lt;@U0BEN&gt;.", ["report.md", "data.csv"])


async def begin(there: Scenario, answer: str = "Done.") -> None:
    there.model.reply(write("report.md", REPORT), write("data.csv", "a,b\n1,2\n"))
    there.model.reply(SHARE)
    there.model.otherwise = lambda _: message(text(answer))
    await there.say("@alpha report")


async def test_an_agent_shares_files_in_one_message_of_its_thread(serving):
    async with serving() as there:
        await begin(there)
        await there.sees("Done.")
        assert shared(there) == [SHARED]
        (posted,) = [m for m in there.slack.workspace.thread("general", there.root) if m.files]
        assert [file.content for file in posted.files] == [REPORT.encode(), b"a,b\n1,2\n"]
        assert [file.snippet_type for file in posted.files] == ["markdown", "csv"]
        assert "Shared in the thread: report.md, data.csv." in str(there.model.bodies[-1]["messages"][-1])


async def test_a_file_that_the_run_made_and_its_answer_names_is_shared_with_it_once(serving):
    async with serving() as there:
        there.model.reply(write("out/report.md", REPORT), write("notes.txt", "private"))
        there.model.reply(text("The report is in `out/report.md`, see also [it](./out/report.md)."))
        await there.say("@alpha report")
        await there.sees("The report is in")
        assert shared(there) == [("", ["report.md"])]
        there.model.reply(text("As I said: out/report.md."))
        await there.say("again?")
        await there.sees("As I said")
        assert await there.final_texts()
        assert shared(there) == [("", ["report.md"])]


async def test_files_of_the_template_that_the_first_answer_names_are_not_shared(serving, tmp_path):
    template = tmp_path / "template"
    template.mkdir()
    for name in ("guide.md", "draft.md"):
        (template / name).write_text("Begin here.\n")
    async with serving(template=template) as there:
        there.model.reply(write("draft.md", REPORT))
        there.model.reply(text("I followed `guide.md` in `draft.md`."))
        await there.say("@alpha report")
        await there.sees("I followed")
        assert await there.final_texts()
        assert shared(there) == [("", ["draft.md"])]


async def test_what_the_agent_has_shared_is_not_shared_again_with_the_answer(serving):
    async with serving() as there:
        await begin(there, "See report.md and data.csv.")
        await there.sees("See report.md")
        assert await there.final_texts()
        assert shared(there) == [SHARED]


async def test_sharing_with_the_answer_can_be_turned_off(serving):
    tools = ("tool-filesystem", "{module: tool-share-file, config: {referred: false}}")
    async with serving(tools=tools) as there:
        there.model.reply(write("report.md", REPORT))
        there.model.reply(text("It is in `report.md`."))
        await there.say("@alpha report")
        await there.sees("It is in")
        assert await there.final_texts()
        assert shared(there) == []


@pytest.mark.parametrize("store", ["sqlite", "redis"])
@pytest.mark.parametrize("step", [GET_URL, UPLOAD, COMPLETE, "after it shared them"])
async def test_a_process_that_is_killed_while_it_shares_files_leaves_them_there_once(serving, step, store):
    async with serving(store) as there:
        is_shared = step == "after it shared them"
        if is_shared:
            there.slack.faults.next(COMPLETE, DropAfterCall())
        hold = there.hold(LOOK if is_shared else step)
        await begin(there)
        await hold.reached.wait()
        await there.kill()
        await there.sees("Done.")
        assert await there.final_texts()
        assert shared(there) == [SHARED]


async def test_a_process_that_is_killed_before_its_answer_shares_the_named_files_once(serving):
    silent = Gate()
    async with serving() as there:
        there.model.reply(write("report.md", REPORT))
        there.model.reply(text("It is in ", silent, "nowhere."))
        await there.say("@alpha report")
        await silent.reached.wait()
        there.model.reply(text("It is in `report.md`."))
        await there.kill()
        await there.sees("It is in `report.md`.")
        assert await there.final_texts()
        assert shared(there) == [("", ["report.md"])]


@pytest.mark.parametrize("fault", [DropBeforeCall(), DropAfterCall(), ServerError(503)], ids=["before", "after", "503"])
@pytest.mark.parametrize(("method", "delay_s"), [(GET_URL, 0), (COMPLETE, 0), (COMPLETE, 2)])
async def test_files_are_shared_once_whatever_slack_does(serving, method, fault, delay_s):
    async with serving() as there:
        there.slack.workspace.rules.share_delay_s = delay_s
        there.slack.faults.next(method, fault)
        await begin(there)
        await there.sees("Done.")
        assert await there.final_texts()
        await there.slack.until(lambda _: shared(there))
        assert shared(there) == [SHARED]


async def test_files_that_slack_refuses_are_named_in_a_notice(serving):
    async with serving() as there:
        there.slack.faults.next(COMPLETE, ErrorResponse("missing_scope"))
        await begin(there)
        await there.sees("I could not share report.md, data.csv: Slack rejects it (missing_scope).")
        await there.sees("Done.")
        assert shared(there) == []


async def test_an_upload_that_fails_is_told_to_the_model(serving):
    async with serving() as there:
        there.slack.faults.next(UPLOAD, ServerError(503))
        await begin(there)
        await there.sees("Done.")
        assert "Slack did not take 'report.md'." in str(there.model.bodies[-1]["messages"][-1])
        assert shared(there) == []
