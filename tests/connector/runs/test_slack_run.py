from __future__ import annotations

import asyncio

from connector import RunFailed
from connector.protocols import MessageAuthor


async def test_a_mention_gets_hourglass_and_status_at_once_and_at_the_end_only_the_answer_stays(scene):
    ts = await scene.ana.say("general", "@alpha look at this")
    run = await scene.sessions.next_run()
    assert (run.instance, run.prompt) == ("alpha", "look at this")
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    status = await scene.status("general", ts)
    assert status.username is None, "the status stands under the bot's own identity, which can edit it"

    await run.answer("**Done** & dusted")

    replies = await scene.quiet("general", ts)
    assert [(m.text, m.username, m.icon_emoji) for m in replies] == [("*Done* &amp; dusted", "Alpha", ":owl:")]


async def test_the_answer_is_posted_before_the_status_is_removed(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    scene.slack.record.clear()
    await run.answer("ok")
    await scene.quiet("general", ts)
    methods = [entry.get("method") for entry in scene.slack.record]
    assert methods.index("chat.postMessage") < methods.index("chat.delete")


async def test_the_status_message_edits_itself(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await run.progress("thinking", iteration=1)
    await scene.posted("general", ts, "⚙️ Thinking…")
    await run.progress("tool:start", tool="read_file", args={}, id="1", label="Reading notes.md")
    await scene.posted("general", ts, "⚙️ Reading notes.md…")
    await run.answer("ok")
    await scene.quiet("general", ts)


async def test_a_message_in_the_thread_steers_without_a_mention_and_its_marks_say_where_it_stands(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    steer = await scene.ben.say("general", "and the tests", thread=ts)
    await scene.reacted("general", steer, "incoming_envelope")
    assert [(s.text, s.author) for s in run.steers] == [("and the tests", MessageAuthor(scene.ben.person.id, "Ben"))]
    assert not scene.message("general", steer).reacted("eyes"), "not read yet"

    await run.read_steers()
    await scene.reacted("general", steer, "eyes")
    await scene.posted("general", ts, "⚙️ Incorporating your input…")
    await run.answer("ok")
    await scene.quiet("general", ts)


async def test_steers_keep_their_order_though_names_must_be_looked_up_first(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    for number in range(5):
        await scene.slack.as_person("ben" if number % 2 else "chloe").say("general", f"steer {number}", thread=ts)
    await run.until(lambda r: len(r.steers) == 5)
    assert [s.text for s in run.steers] == [f"steer {n}" for n in range(5)]
    await run.answer("ok")


async def test_a_message_during_set_up_goes_in_as_soon_as_the_loop_listens(scene):
    scene.sessions.hold_setup = asyncio.Event()
    ts = await scene.ana.say("general", "@alpha look")
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    early = await scene.ana.say("general", "and this", thread=ts)
    await scene.reacted("general", early, "incoming_envelope")
    scene.sessions.hold_setup.set()
    run = await scene.sessions.next_run()
    assert [s.text for s in run.steers] == ["and this"]
    await run.answer("ok")


async def test_a_message_after_the_last_look_gets_a_run_of_its_own_and_later_ones_steer_that(scene):
    ts = await scene.ana.say("general", "@alpha look")
    first = await scene.sessions.next_run()
    first.listening = False
    late = [await scene.ana.say("general", f"late {n}", thread=ts) for n in range(3)]
    await scene.reacted("general", late[-1], "incoming_envelope")
    await first.answer("first answer")
    second = await scene.sessions.next_run()
    assert second.prompt == "late 0"
    assert [s.text for s in second.steers] == ["late 1", "late 2"]
    await second.answer("second answer")
    await scene.posted("general", ts, "second answer")


async def test_an_interim_answer_is_a_message_of_its_own_before_the_final_one(scene, of_bot):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await run.progress("text", text="So far: fine.")
    await run.answer("And the tests are fine too.")
    assert of_bot(await scene.quiet("general", ts, posts=2)) == ["So far: fine.", "And the tests are fine too."]


async def test_a_direct_message_needs_no_mention_and_is_answered_in_place(scene):
    dm = await scene.ana.open_dm("alpha")
    await scene.ana.say(dm, "hello")
    run = await scene.sessions.next_run()
    assert run.prompt == "hello"
    await scene.ana.say(dm, "one more thing")
    await run.until(lambda r: len(r.steers) == 1)
    await run.answer("hi")
    answer = await scene.slack.until(lambda ws: next((m for m in ws.messages(dm) if m.text == "hi"), None))
    assert answer.thread_ts is None


async def test_two_threads_run_side_by_side(scene, of_bot):
    roots = [await scene.ana.say("general", f"@alpha task {n}") for n in range(2)]
    runs = [await scene.sessions.next_run() for _ in roots]
    assert len({run.conversation for run in runs}) == 2
    for run in reversed(runs):
        await run.answer(f"answer to {run.prompt}")
    for number, root in enumerate(roots):
        assert of_bot(await scene.quiet("general", root)) == [f"answer to task {number}"]


async def test_what_is_not_for_an_agent_starts_nothing(scene):
    await scene.ana.say("general", "good morning")
    thread = await scene.ana.say("general", "shall we have lunch?")
    await scene.ben.say("general", "yes", thread=thread)
    ts = await scene.ana.say("general", "@alpha first for you")
    run = await scene.sessions.next_run()
    assert run.prompt == "first for you"
    await run.answer("ok")
    await scene.quiet("general", ts)
    await scene.ana.say("general", "@ben did you see that?", thread=ts)
    await scene.ana.say("general", "and what now", thread=ts)
    run = await scene.sessions.next_run()
    assert run.prompt == "and what now", "the thread goes on without a mention, but not with what is for Ben"
    await run.answer("nothing")


async def test_a_message_names_the_instance_it_is_for_and_the_thread_stays_with_it(scene):
    ts = await scene.ana.say("general", "@alpha beta: look at this")
    run = await scene.sessions.next_run()
    assert (run.instance, run.prompt) == ("beta", "look at this")
    await run.answer("ok")
    replies = await scene.quiet("general", ts)
    assert [m.username for m in replies] == ["Beta"]
    await scene.ana.say("general", "go on", thread=ts)
    assert (await scene.sessions.next_run()).instance == "beta"


async def test_the_words_of_slack_reach_the_agent_as_plain_text(scene):
    general = scene.slack.channel("general").id
    ben = scene.slack.person("ben").id
    await scene.ana.say(
        "general", f"@alpha ask <@{ben}|ben> in <#{general}|general> about <https://a.b/c|that> &amp; &lt;this&gt;"
    )
    run = await scene.sessions.next_run()
    assert run.prompt == "ask @ben in #general about that (https://a.b/c) & <this>"
    await run.answer("ok")


async def test_a_character_reference_that_slack_does_not_write_stays_as_it_is(scene):
    words = f"&#{'9' * 5000}; &amp;#62; &eacute;"
    await scene.ana.say("general", f"@alpha {words}")
    assert (await scene.sessions.next_run()).prompt == words.replace("&amp;", "&")


async def test_a_mention_without_words_is_asked_back(scene):
    ts = await scene.ana.say("general", "@alpha")
    await scene.posted("general", ts, "Hi! Tell me what I can do for you.")
    assert scene.sessions.idle


async def test_a_failed_run_says_so_in_the_thread_and_the_next_message_works(scene, of_bot):
    ts = await scene.ana.say("general", "@alpha look")
    await (await scene.sessions.next_run()).fail(RunFailed("The model's service cannot be reached at the moment."))
    assert of_bot(await scene.quiet("general", ts)) == ["⚠️ The model's service cannot be reached at the moment."]
    await scene.ana.say("general", "again", thread=ts)
    await (await scene.sessions.next_run()).answer("here I am")
    await scene.posted("general", ts, "here I am")


async def test_a_crash_is_a_sentence_and_not_silence(scene, of_bot):
    ts = await scene.ana.say("general", "@alpha look")
    await (await scene.sessions.next_run()).fail(KeyError("secret detail"))
    (text,) = of_bot(await scene.quiet("general", ts))
    assert text.startswith("⚠️ Something went wrong on my side.")
    assert "secret" not in text


async def test_an_empty_answer_is_told(scene, of_bot):
    ts = await scene.ana.say("general", "@alpha look")
    await (await scene.sessions.next_run()).answer("")
    assert of_bot(await scene.quiet("general", ts)) == ["I am done and have nothing to add."]


async def test_a_refused_steer_is_told_why_and_not_marked_as_accepted(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    run.refuses = True
    steer = await scene.ana.say("general", "one too many", thread=ts)
    await scene.posted("general", ts, "send it with some")
    assert not scene.message("general", steer).reacted("incoming_envelope")
    await run.answer("ok")


async def test_a_long_answer_comes_in_pieces_in_order(scene, of_bot):
    ts = await scene.ana.say("general", "@alpha write a lot")
    lines = [f"line {n} " + "x" * 80 for n in range(100)]
    await (await scene.sessions.next_run()).answer("\n\n".join(lines))
    texts = of_bot(await scene.quiet("general", ts))
    assert len(texts) > 1
    assert all(len(text) <= 3900 for text in texts)
    assert [line for text in texts for line in text.split("\n") if line] == lines
