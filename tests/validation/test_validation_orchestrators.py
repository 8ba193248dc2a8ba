from __future__ import annotations

import pytest
from example_modules import Mutant

from orchestrator_interactive.validation.orchestrator import events, hooks, rows, rules

_START = '            await hooks.emit("execution:start", {"prompt": prompt})\n'
_END = '            await hooks.emit("execution:end", {"response": text, "status": ended})\n'
_COMPLETE = '            await hooks.emit("orchestrator:complete", complete)\n'
_FINALLY = "        finally:\n" + _END
_CANCELLED = '            ended, status = "cancelled", "cancelled"\n            raise\n'
_CRASHED = """        except Exception as e:  # noqa: BLE001 - a tool may not take the run down
            result = ToolResult(success=False"""
_PRE = '            about = await self.consult("tool:pre", about)\n'
_POST = '            about = await self.consult("tool:post", {**about, "tool_result": result})\n'
_DENY = '        if result.action == "deny":\n            raise DeniedError(result.reason)\n'
_CALL = "        answer = await self.provider.complete(self.request(rows))\n"
_REQUEST = '        await self.consult("provider:request", about)\n'
_RESPONSE = '        await self.consult("provider:response", told)\n'
_RESULTS = """        finally:
            for call in calls:
                row = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": results[call.id]}
                await self.context.add_message(row)
        await self.inject()
"""

BROKEN = {
    "it does not heed a cancellation": Mutant(
        _CANCELLED,
        "            await asyncio.Event().wait()\n            raise\n",
        (rules.runs_end,),
        "The run with a cancelled model call does not end within 0.5 seconds",
        limit_s=0.5,
    ),
    "it returns the response": Mutant(
        "                    return answer.text\n",
        "                    return answer\n",
        (
            rules.returns_the_text,
            rules.survives_a_broken_tool,
            rules.survives_an_unknown_tool,
            rules.knows_several_providers,
        ),
        "In the run with a plain answer it returns a ChatResponse, not 'There are apples.'.",
    ),
    "it lets a tool's error through": Mutant(
        _CRASHED,
        "        except OSError as e:\n            result = ToolResult(success=False",
        (rules.survives_a_broken_tool, events.answers_tool_pre),
        "In the run with a tool that raises it raises RuntimeError: The tool is broken (loop_plain.py, line",
    ),
    "it takes every tool for granted": Mutant(
        "        if call.name not in self.tools:\n            return f\"There is no tool '{call.name}'.\"\n",
        "",
        (rules.survives_an_unknown_tool, events.answers_tool_pre),
        "In the run with an unknown tool it raises KeyError: 'nowhere' (loop_plain.py, line",
    ),
    "it swallows a cancellation": Mutant(
        _CANCELLED,
        '            status = "cancelled"\n            return "Cancelled."\n',
        (rules.passes_a_cancellation_on,),
        "In the run with a cancelled model call it returns 'Cancelled.'.",
    ),
    "it trips over a provider's error": Mutant(
        _CALL,
        _CALL.replace("        answer", "        try:\n            answer")
        + "        except Exception:\n            raise KeyError('answer') from None\n",
        (rules.handles_provider_errors,),
        "In the run with an error of the provider it raises KeyError: 'answer'",
    ),
    "it knows one provider": Mutant(
        "next(iter(providers.items()))",
        "next(iter({'mock': providers['mock']}.items()))",
        (
            rules.knows_several_providers,
            events.starts_with_the_prompt,
            events.ends_once,
            events.completes_always,
        ),
        "In the run with two providers it raises KeyError: 'mock'",
    ),
    "it has no limit": Mutant(
        "MOST_TURNS = 25",
        "MOST_TURNS = 10**9",
        (rules.limits_its_iterations,),
        "After 300 answers that all call a tool",
        limit_s=30.0,
    ),
    "something else comes first": Mutant(
        _START,
        '            await hooks.emit("loop-plain:turn", {"turn": 0})\n' + _START,
        (events.starts_with_the_prompt,),
        "In the run with a plain answer loop-plain:turn comes first.",
    ),
    "it starts without the prompt": Mutant(
        '{"prompt": prompt})\n            text',
        "{})\n            text",
        (events.starts_with_the_prompt,),
        "its 'prompt' is None.",
    ),
    "it ends in the good case only": Mutant(
        _FINALLY,
        _END.replace("            ", "        ", 1).join(
            ["        finally:\n            if ended == 'completed':\n        ", ""]
        ),
        (events.ends_once,),
        "In the run with an error of the provider it comes never.",
    ),
    "it ends twice": Mutant(_END, _END * 2, (events.ends_once,), "In the run with a plain answer it comes twice."),
    "its end is always good": Mutant(
        '"status": ended}',
        '"status": "completed"}',
        (events.ends_with_the_status,),
        "it carries the status 'completed' where 'error' is right.",
    ),
    "its end says nothing": Mutant(
        '"response": text,',
        '"response": None,',
        (events.ends_with_the_status,),
        "it carries the response None where 'There are apples.' is right.",
    ),
    "it goes on after its end": Mutant(
        _FINALLY,
        _FINALLY
        + '            await hooks.emit("provider:response", {"provider": "", "response": "", "usage": None})\n',
        (events.ends_last, events.announces_model_calls),
        "In the run with a plain answer provider:response comes after it.",
    ),
    "it never completes": Mutant(
        _COMPLETE,
        "",
        (events.completes_once, events.completes_always),
        "In the run with a plain answer it comes never.",
    ),
    "it completes in the good case only": Mutant(
        _COMPLETE,
        "            if ended == 'completed':\n    " + _COMPLETE,
        (events.completes_always,),
        "In the run with an error of the provider it comes never.",
    ),
    "it completes without a name": Mutant(
        '{"orchestrator": "loop-plain",', "{", (events.completes_with_the_figures,), "its 'orchestrator' is None."
    ),
    "it completes with a number of its own": Mutant(
        '"turn_count": run.turns',
        '"turn_count": 0',
        (events.completes_with_the_figures,),
        "In the run with a plain answer its 'turn_count' is 0 though the model was asked once.",
    ),
    "it completes with a word of its own": Mutant(
        '"completed", "success"', '"completed", "fine"', (events.completes_with_the_figures,), "its 'status' is 'fine'."
    ),
    "it asks in silence": Mutant(
        _RESPONSE,
        "",
        (events.announces_model_calls,),
        "In the run with a plain answer provider:response comes never, and the model is asked once.",
    ),
    "it asks first": Mutant(
        _CALL,
        _CALL + '        await self.consult("provider:request", {**about, "late": True})\n',
        (events.announces_model_calls,),
        "provider:request comes twice, and the model is asked once.",
    ),
    "it does not say what a tool gave": Mutant(
        _POST,
        '            about = {**about, "tool_result": result}\n',
        (events.answers_tool_pre,),
        "tool:pre comes once, and tool:post or tool:error never, for the call call_1.",
    ),
    "it runs tools in silence": Mutant(
        _PRE,
        "            pass\n",
        (events.answers_tool_pre, events.answers_tool_pre_when_cancelled),
        "tool:pre comes never, and tool:post or tool:error once, for the call call_1.",
    ),
    "it says nothing of a tool that is cancelled": Mutant(
        '            await self.hooks.emit("tool:error", {**about, "error": {"message": "cancelled"}})\n',
        "",
        (events.answers_tool_pre_when_cancelled,),
        "In the run with a cancelled tool call tool:pre comes once, and tool:post or tool:error never",
    ),
    "it calls the input otherwise": Mutant(
        '"tool_name": call.name, ',
        '"tool": call.name, ',
        (events.carries_the_payloads,),
        "tool:error lacks 'tool_name'. tool:post lacks 'tool_name'. tool:pre lacks 'tool_name'.",
    ),
    "it keeps its events to itself": Mutant(
        '["loop-plain:turn"]',
        "[]",
        (events.contributes_its_events,),
        "It emits loop-plain:turn, which is not contributed.",
    ),
    "it does not keep the prompt": Mutant(
        '            await self.context.add_message({"role": "user", "content": prompt})\n',
        "",
        (rows.keeps_prompt_and_answer, rows.sends_prompt_and_results),
        "After a run the context holds no row of the role 'user' with the prompt.",
    ),
    "it does not keep the answer": Mutant(
        "                await self.keep(answer, calls)\n                if not calls:",
        "                if calls:\n                    await self.keep(answer, calls)\n                if not calls:",
        (rows.keeps_prompt_and_answer,),
        "After a run the context holds no row of the role 'assistant' with the answer.",
    ),
    "it sends the whole history": Mutant(
        "self.context.get_messages_for_request(provider=self.provider)",
        "self.context.get_messages()",
        (rows.sends_the_view,),
        "a request lacks the view of get_messages_for_request().",
    ),
    "it sends the first result only": Mutant(
        '"content": results[call.id]}',
        '"content": results[calls[0].id]}',
        (rows.sends_prompt_and_results,),
        "The request after the tools lacks a result: 'In 1.txt are apples.'.",
    ),
    "it forgets the result of a tool that is not there": Mutant(
        _RESULTS,
        _RESULTS.replace("for call in calls:", "for call in [call for call in calls if call.name in self.tools]:"),
        (rows.keeps_whole_pairs, rows.sends_whole_pairs),
        "After the run with an unknown tool: Between the call call_1 and its result is",
    ),
    "it leaves calls open when it is cancelled": Mutant(
        _RESULTS,
        _RESULTS.replace("        finally:", "        except OSError:\n            raise\n        else:"),
        (rows.leaves_whole_pairs,),
        "After the run with a cancelled tool call: The call call_1 has no result.",
    ),
    "it keeps the texts only": Mutant(
        "[block.model_dump() for block in answer.content]",
        "answer.text",
        (rows.keeps_the_signature,),
        "The signature is missing in the next request.",
    ),
    "it does not hear a no": Mutant(
        _DENY,
        "",
        (hooks.honours_deny, hooks.honours_refusal, hooks.honours_denied_request, hooks.withholds_a_denied_result),
        "In the run with a denied tool the tool runs anyway.",
    ),
    "it does not ask": Mutant(
        "        result = await self.coordinator.process_hook_result(result, event, result.hook_name)\n        if",
        "        if",
        (hooks.honours_refusal, hooks.withholds_a_denied_result),
        "In the run with a tool that the user refuses the tool runs anyway.",
    ),
    "it takes a question for a no": Mutant(
        "        result = await self.coordinator.process_hook_result(result, event, result.hook_name)\n        if",
        "        if result.action == 'ask_user':\n            raise DeniedError('asked')\n        if",
        (hooks.honours_approval, events.answers_tool_pre),
        "The tool does not run.",
    ),
    "it does not modify": Mutant(
        'return result.data if result.action == "modify" else data',
        "return data",
        (hooks.uses_the_modified_input, hooks.uses_the_modified_result),
        "The tool gets {'path': '0.txt'} instead of {'path': 'replaced.txt'}.",
    ),
    "it keeps the original result": Mutant(
        '        return about["tool_result"].get_serialized_output()\n',
        "        return result.get_serialized_output()\n",
        (hooks.uses_the_modified_result,),
        "The model reads the original.",
    ),
    "it does not hear a no to a result": Mutant(
        '            return f"Withheld: {e}"\n',
        "            return result.get_serialized_output()\n",
        (hooks.withholds_a_denied_result,),
        "In the run with a denied result the model reads it anyway. "
        "In the run with a result that the user refuses the model reads it anyway.",
    ),
    "it does not inject": Mutant(
        "            self.later.append((result, event))\n",
        "",
        (hooks.injects, hooks.drops_ephemeral_injection),
        "In the run with an injection at tool:pre the next request has the text 0 times.",
    ),
    "it injects twice": Mutant(
        "            self.later.append((result, event))\n",
        "            self.later += [(result, event)] * 2\n",
        (hooks.injects,),
        "In the run with an injection at tool:pre the next request has the text 2 times.",
    ),
    "it injects at once": Mutant(
        'if event not in ("tool:pre", "tool:post"):',
        "if event:",
        (rows.sends_whole_pairs, rows.keeps_whole_pairs),
        "Between the call call_1 and its result is a row of the role 'system'.",
    ),
    "it never forgets a remark": Mutant(
        "        self.remarks.clear()\n", "", (hooks.drops_ephemeral_injection,), "A later request still has the text."
    ),
    "it keeps a remark": Mutant(
        "        self.remarks.clear()\n",
        "        while self.remarks:\n"
        "            row = {'role': 'user', 'content': self.remarks.pop()}\n"
        "            await self.context.add_message(row)\n",
        (hooks.drops_ephemeral_injection,),
        "A later request still has the text. The text is in the context.",
    ),
    "it does not hear a no to the prompt": Mutant(
        _DENY,
        _DENY.replace(":", ' and event != "prompt:submit":', 1),
        (hooks.honours_denied_request,),
        "The model is asked though prompt:submit was denied.",
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_an_orchestrator_that_breaks_a_rule_is_told_so(check_broken, broken):
    await check_broken("loop_plain", broken)


def test_every_rule_for_orchestrators_has_been_seen_broken():
    every = {*rules.RULES, *events.EVENT_RULES, *rows.ROW_RULES, *hooks.HOOK_RULES}
    assert {broken.rules[0] for broken in BROKEN.values()} == every


async def test_an_orchestrator_that_asks_with_bare_rows_is_told_so(examiner):
    path = examiner.changed("loop_plain", ("return ChatRequest(messages=messages, tools=specs)", "return messages"))
    found = {finding.check: finding for finding in (await examiner.examine(path)).of("failed")}
    assert "asked with a list instead of a ChatRequest." in found[rows.sends_the_view.check].problem


async def test_after_two_runs_that_do_not_end_the_others_are_not_tried(examiner):
    start = '            await hooks.emit("execution:start", {"prompt": prompt})\n'
    path = examiner.changed("loop_plain", (start, start + "            await asyncio.Event().wait()\n"))
    report = await examiner.examine(path, limit_s=0.2)
    [finding] = report.of("failed")
    assert finding.problem == (
        "The run with a plain answer does not end within 0.2 seconds. "
        "The run with two rounds of tools does not end within 0.2 seconds."
    )
    assert rules.returns_the_text.check in {finding.check for finding in report.of("not checked")}


async def test_an_orchestrator_may_mount_by_the_alias_of_the_contracts(examiner):
    alias = 'mount("session", orchestrator, name="orchestrator")'
    path = examiner.changed("loop_plain", ('mount("orchestrator", orchestrator)', alias))
    assert (await examiner.examine(path)).passed
