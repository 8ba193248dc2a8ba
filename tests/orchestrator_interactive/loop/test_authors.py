"""On whose authority a tool is called: that of the authors of the messages that were new to the model's answer."""

import asyncio
from typing import Any

import pytest
from agents import ScriptedTool, call, make_agent, say, soon, use

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel.tool_support import CALLERS, current_call
from orchestrator_interactive.loop.injection_queue import Talk, injection_row, injection_rows, notice_row
from orchestrator_interactive.transcript.framing import Author
from orchestrator_interactive.transcript.rows import assistant_row, authors_at, tool_row, user_row

ADA, BOB = Author("UADA", "Ada"), Author("UBOB", "Bob")
A = use("who", "a")


def by(author: Author | None, text: str = "please") -> Injection:
    return Injection(text, author=author)


def prompt(author: str | None = "UADA") -> dict[str, Any]:
    return user_row("Ada (UADA): go", "m1", author)


ANSWER = assistant_row((), [use("who", "before")])
RESULT = tool_row(use("who", "before"), "done")
CALL = assistant_row((), [A])
HOOKS = {"role": "user", "content": "Bob (UBOB): go", "metadata": {"source": "hook", "authors": ["UBOB"]}}
TALK = Talk((("m2", "Bob (UBOB), 2026-03-02 14:05 UTC: use my account"),))


@pytest.mark.parametrize(
    ("rows", "authors"),
    [
        pytest.param([prompt(), CALL], {"UADA"}, id="the prompt"),
        pytest.param([prompt(None), CALL], {""}, id="a prompt that imitates an author"),
        pytest.param([prompt("U ADA"), CALL], {""}, id="an id that is none"),
        pytest.param([prompt(), ANSWER, RESULT, CALL], {"UADA"}, id="a further answer"),
        pytest.param([prompt(), ANSWER, RESULT, injection_row([by(BOB)]), CALL], {"UBOB"}, id="a steer by another"),
        pytest.param(
            [prompt(), ANSWER, RESULT, injection_row([by(BOB), by(ADA)]), CALL], {"UADA", "UBOB"}, id="one drain of two"
        ),
        pytest.param(
            [prompt(), ANSWER, RESULT, injection_row([by(BOB), by(None)]), CALL],
            {"UBOB", ""},
            id="one drain of unknown",
        ),
        pytest.param([prompt(), injection_row([by(BOB)]), CALL], {"UADA", "UBOB"}, id="a steer before any answer"),
        pytest.param([injection_row([by(BOB)]), prompt(), CALL], {"UADA", "UBOB"}, id="left from an earlier run"),
        pytest.param([prompt(), ANSWER, RESULT, HOOKS, CALL], {"UADA"}, id="a hook"),
        pytest.param([prompt(), ANSWER, RESULT, notice_row(["Bob (UBOB): go"]), CALL], {"UADA"}, id="a notice"),
        pytest.param(
            [prompt(), ANSWER, RESULT, *injection_rows([Injection("x", author=ADA, talk=TALK)]), CALL],
            {"UADA"},
            id="talk of another",
        ),
        pytest.param([prompt(), CALL, injection_row([by(BOB)])], {"UADA"}, id="a steer after the call"),
        pytest.param([prompt(), ANSWER, RESULT, injection_row([by(BOB)])], {"UBOB"}, id="a call that has no row yet"),
        pytest.param([], set(), id="nothing"),
    ],
)
def test_the_log_tells_whose_messages_led_to_a_call(rows: list[dict[str, Any]], authors: set[str]) -> None:
    assert authors_at(rows, "a") == authors


class Witness:
    """A tool that notes the authors of each of its calls; `gate` holds them."""

    def __init__(self) -> None:
        self.seen: list[set[str]] = []
        self.gate = asyncio.Event()
        self.tool = ScriptedTool("who", self._note)

    async def _note(self, _input: dict[str, Any]) -> str:
        context = current_call.get()
        assert context is not None
        assert context.authors is not None
        await self.gate.wait()
        self.seen.append(set(await context.authors()))
        return "noted"


async def test_a_call_keeps_its_author_while_another_person_writes() -> None:
    witness = Witness()
    agent = await make_agent(call(use("who", "a")), call(use("who", "b")), say("done"), tools=[witness.tool])
    run = asyncio.create_task(agent.session.execute("go", author="UADA"))
    await witness.tool.started()
    agent.inject(by(BOB, "! do it for me"))  # postpones the call, and leads to the next one
    await witness.tool.started(2)
    witness.gate.set()
    await soon(run)
    assert witness.seen == [{"UADA"}, {"UBOB"}]


async def test_after_a_takeover_the_log_tells_the_same() -> None:
    witness = Witness()
    witness.gate.set()
    witness.tool.repeatable = True
    agent = await make_agent(call(use("who", "b")), say("done"), tools=[witness.tool])
    await agent.context.set_messages([prompt(), ANSWER, RESULT, injection_row([by(BOB)]), CALL])
    await soon(agent.session.resume())
    assert witness.seen == [{"UBOB"}, {"UBOB"}]


@pytest.mark.parametrize("callers", [{"UADA"}, {"UADA", "UBOB"}, set()])
async def test_a_sub_agent_has_the_authority_of_the_call_for_which_it_works(callers: set[str]) -> None:
    witness = Witness()
    witness.gate.set()
    agent = await make_agent(call(use("who", "a")), say("done"), tools=[witness.tool])

    async def authors() -> frozenset[str]:
        return frozenset(callers)

    agent.coordinator.register_capability(CALLERS, authors)
    await soon(agent.session.execute("Bob (UBOB): go"))
    assert witness.seen == [callers or {""}]
