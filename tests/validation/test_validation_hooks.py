from __future__ import annotations

import pytest
from example_modules import Mutant

from orchestrator_interactive.validation.hook import rules

_FIRST = '    given = data.get("tool_input")\n    path = given.get("path") if isinstance(given, dict) else None\n'

BROKEN = {
    "a plain function": Mutant(
        "async def guard", "def guard", (rules.handlers_are_async,), "guard: it is a plain function."
    ),
    "a handler with a parameter too many": Mutant(
        "async def __call__(self, event, data)",
        "async def __call__(self, event, data, session=None, *, more)",
        (rules.handlers_are_async, rules.accepts_contract_data, rules.does_not_raise),
        "remark: it cannot be called with (event, data): missing a required argument: 'more'.",
    ),
    "a result that is read as a dictionary": Mutant(
        _FIRST,
        _FIRST + '    result = data.get("tool_result")\n    wrong = result and "output" in result.keys()\n',
        (rules.accepts_contract_data, rules.does_not_raise),
        "guard at tool:post, given the contract's data, raises AttributeError: 'ToolResult' object",
    ),
    "data that has to be there": Mutant(
        _FIRST,
        '    given = data["tool_input"]\n    path = given.get("path") if isinstance(given, dict) else None\n',
        (rules.does_not_raise,),
        "guard at tool:pre, given {}, raises KeyError: 'tool_input' (hooks_guard.py, line 7).",
    ),
    "data of a type that it has to be": Mutant(
        " if isinstance(given, dict) else None",
        " if given else None",
        (rules.does_not_raise,),
        "guard at tool:pre, given values of the wrong types, raises AttributeError",
    ),
    "no result": Mutant(
        "    return HookResult()\n",
        "    return None\n",
        (rules.returns_a_result,),
        "guard at tool:pre, given the contract's data, returns None.",
    ),
    "a result of another kind": Mutant(
        "    return HookResult()\n", '    return {"action": "continue"}\n', (rules.returns_a_result,), "returns a dict."
    ),
    "a modification of nothing": Mutant(
        "    return HookResult()\n",
        '    return HookResult(action="modify")\n',
        (rules.results_are_complete,),
        "wants to modify and gives no data.",
    ),
    "an injection of nothing": Mutant(
        ", context_injection=self.text",
        "",
        (rules.results_are_complete,),
        "remark at tool:error, given the contract's data, wants to inject_context and gives no context_injection.",
    ),
    "a question without words": Mutant(
        "    return HookResult()\n",
        '    return HookResult(action="ask_user")\n',
        (rules.results_are_complete,),
        "wants to ask_user and gives no approval_prompt.",
    ),
    "a handler that waits for ever": Mutant(
        _FIRST,
        _FIRST + "    import asyncio\n    await asyncio.Event().wait()\n",
        (rules.answers_in_time,),
        "guard at tool:pre, given the contract's data, does not answer within 0.3 seconds.",
        limit_s=0.3,
    ),
    "no clean-up": Mutant(
        "    return unregister\n",
        "",
        (rules.cleans_up,),
        "mount() returns no clean-up, and registers none.",
    ),
    "a clean-up that forgets": Mutant(
        "for each in handlers:",
        "for each in handlers[:2]:",
        (rules.cleans_up,),
        "After the clean-up remark still listens to tool:error.",
    ),
    "an event that is misspelt": Mutant(
        '"tool:pre", guard',
        '"tool:before", guard',
        (rules.knows_its_events,),
        "guard listens to tool:before, which is no event of the kernel and not contributed.",
    ),
    "an early priority": Mutant(
        "priority=20", "priority=0", (rules.has_a_usual_priority,), "guard listens to tool:pre with priority 0."
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_hook_that_breaks_a_rule_is_told_so(check_broken, broken):
    await check_broken("hooks_guard", broken)


def test_every_rule_for_hooks_has_been_seen_broken():
    assert {broken.rules[0] for broken in BROKEN.values()} == set(rules.RULES)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ('action="deny"', "guard at tool:pre, given the contract's data, denies and gives no reason"),
        ('action="ask_user", approval_prompt="May I?", approval_options=["Yes", "No"]', "begins with 'Allow'"),
    ],
)
async def test_a_result_that_hardly_means_what_it_says_is_warned_of(examiner, result, said):
    path = examiner.changed("hooks_guard", ("    return HookResult()\n", f"    return HookResult({result})\n"))
    report = await examiner.examine(path)
    [finding] = report.of("warning")
    assert finding.check == rules.results_are_complete.check
    assert said in finding.problem
    assert report.passed


@pytest.mark.parametrize("options", ["None", '["allow once", "No"]'])
async def test_a_question_with_an_option_that_allows_is_fine(examiner, options):
    question = f'action="ask_user", approval_prompt="May I?", approval_options={options}'
    path = examiner.changed("hooks_guard", ("    return HookResult()\n", f"    return HookResult({question})\n"))
    assert not (await examiner.examine(path)).of("warning")


async def test_a_hook_may_listen_to_an_event_that_its_module_contributes(examiner):
    contribute = 'coordinator.register_contributor("observability.events", "guard", lambda: ["guard:asked"])'
    path = examiner.changed(
        "hooks_guard",
        ('"tool:pre", guard', '"guard:asked", guard'),
        ("    handlers = [\n", f"    {contribute}\n    handlers = [\n"),
    )
    assert not (await examiner.examine(path)).of("warning")


async def test_a_hook_that_registers_nothing_is_told_so(examiner):
    path = examiner.changed("hooks_guard", ("coordinator.hooks.register", "(lambda *_, **__: print)"))
    [finding] = (await examiner.examine(path)).of("failed")
    assert finding.check.rule == "it registers handlers"
    assert finding.problem == "mount() mounts nothing and registers no handler; it returns a function."


async def test_a_hook_may_register_when_the_session_is_ready_and_clean_up_through_the_coordinator(examiner):
    path = examiner.changed(
        "hooks_guard",
        ("async def mount(coordinator, config):", "async def on_session_ready(coordinator):\n    config = {}"),
        (
            "    return unregister\n",
            "    coordinator.register_cleanup(unregister)\n\n\nasync def mount(c, config): ...\n",
        ),
    )
    report = await examiner.examine(path)
    assert report.passed
    assert report.complete
    assert not report.of("warning")
