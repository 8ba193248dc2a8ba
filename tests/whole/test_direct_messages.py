"""Direct messages of the whole service: a run in each thread, or one conversation, and suggested prompts."""

from __future__ import annotations

import pytest
from anthropic_server import text, tool_call
from scenario import reached_again, scenario

ASKED = {"one": "check the first", "two": "check the second"}


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_two_runs_side_by_side_are_stopped_and_taken_over_in_their_threads(tmp_path, store):
    async with scenario(tmp_path, store) as there:
        (replica,) = there.replicas.each
        await there.start(replica)
        dm, roots = await there.ana.open_dm("alpha"), {}

        async def says(name: str, words: str) -> str:
            """Wait until a thread ends with this text of the bot, and no run is shown there."""

            def found(ws) -> bool:
                root, *replies = ws.thread(dm, roots[name])
                is_shown = root.reacted("hourglass_flowing_sand") or any("⚙️" in m.text for m in replies)
                return not is_shown and bool(replies) and words in replies[-1].text

            await there.slack.until(found, 40)
            return [m.text for m in there.slack.workspace.thread(dm, roots[name])[1:]]

        for calls, (name, words) in enumerate(ASKED.items(), 1):
            there.model.reply(tool_call("run_tests", {}))
            roots[name] = await there.ana.say(dm, words)
            await reached_again(there.tests, calls)
            await there.slack.until(lambda ws, root=roots[name]: ws.session(dm, root).status == "processing")
        await there.ana.stop_session(dm, roots["one"])
        assert len(await says("one", "🛑 Stopped by Ana.")) == 1

        there.board.choose(None)
        await replica.kill()
        there.model.reply(text("I do not know the result."))
        await there.start(replica)
        assert len(await says("two", "I do not know the result.")) == 2
        assert [m.text for m in there.slack.workspace.messages(dm) if not m.thread_ts or not m.is_reply] == [
            *ASKED.values()
        ]
        assert "the first" not in str(there.model.bodies[-1]["messages"])
        assert there.slack.workspace.session(dm, roots["two"]).title == "check the second"
        there.model.reply(text("Nothing is left."))
        asked = await there.ana.say(dm, "what is left?", thread=roots["one"])
        await says("one", "Nothing is left.")
        assert there.slack.workspace.message(dm, asked).reacted("eyes") is False


SINGLE = """
instances: {alpha: {persona: {name: Alpha, emoji: ":owl:"}}}
slack: {dm: single, suggested_prompts: [{title: The news, message: What is new}]}
store: sqlite:conversations.db
"""


async def test_direct_messages_are_one_conversation_and_have_prompts_where_the_configuration_says_so(
    environment, model, tmp_path
):
    (tmp_path / "config.yaml").write_text(SINGLE)
    slack = environment.slack
    ana = slack.as_person("ana")
    dm = await ana.open_dm("alpha")
    async with environment.serving("--config", str(tmp_path / "config.yaml"), **model.env) as service:
        await service.says("service.ready")
        await ana.open_home()
        await slack.until(lambda ws: (found := ws.session(dm, "")) and found.prompts == (("The news", "What is new"),))
        texts: list[str] = []
        for asked, answer in (("one", "I read one."), ("two", "I read both.")):
            model.reply(text(answer))
            await ana.say(dm, asked)
            texts.extend((asked, answer))
            await slack.until(lambda ws: [m.text for m in ws.messages(dm) if not m.thread_ts] == texts, 20)
    assert "one" in str(model.bodies[-1]["messages"])
