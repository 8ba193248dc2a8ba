from __future__ import annotations

import json

import pytest
from example_modules import Mutant

from orchestrator_interactive.validation.provider import rules, wire
from orchestrator_interactive.validation.provider.service_answers import TEXT, service_answer

_INFO = 'return ProviderInfo(id="web", display_name="Web", defaults=defaults)'
_RAISED = (
    '            raise InvalidRequestError(answer["error"]["message"], provider="web", status_code=response.status)\n'
)
_ANSWER = 'return ChatResponse(content=[own(block) for block in answer["content"]], usage=usage)'
_PARSE = "return [ToolCall(id=call.id, name=call.name, arguments=call.input) for call in calls]"
_EVER = "        await asyncio.Event().wait()\n"

# Of the provider that asks a service.
BROKEN = {
    "an info that is a dictionary": Mutant(
        _INFO,
        'return {"id": "web", "defaults": defaults}',
        (rules.identifies_itself, rules.reports_limits),
        "It returns a dict, not a ProviderInfo.",
    ),
    "an info that raises": Mutant(
        _INFO,
        'return config["info"]',
        (rules.identifies_itself, rules.reports_limits),
        "It raises NameError: name 'config' is not defined (provider_web.py, line",
    ),
    "nobody": Mutant('id="web"', 'id=" "', (rules.identifies_itself,), "Its id is blank."),
    "no window": Mutant(
        '"context_window": 8000, "max', '"max', (rules.reports_limits,), "no number of tokens for 'context_window'."
    ),
    "models in a dictionary": Mutant(
        "        found = await",
        '        return {"web-1": "Web"}\n        found = await',
        (rules.lists_its_models,),
        "It returns a dict.",
    ),
    "models that are names": Mutant(
        "        found = await",
        '        return ["web-1"]\n        found = await',
        (rules.lists_its_models,),
        "a str in the list",
    ),
    "only the first call": Mutant(
        _PARSE,
        _PARSE.replace("in calls]", "in calls[:1]]"),
        (rules.parses_calls,),
        "Of a response with 2 calls it makes [{'id': 'call_1'",
    ),
    "calls that are an iterator": Mutant(
        _PARSE, f"return iter({_PARSE.removeprefix('return ')})", (rules.parses_calls,), "a list_iterator, not a list."
    ),
    "calls that are taken out": Mutant(
        "    def parse_tool_calls(self, response):\n",
        "    def parse_tool_calls(self, response):\n        response.tool_calls = None\n",
        (rules.parsing_changes_nothing,),
        "The response is changed afterwards.",
    ),
    "an answer that is a text": Mutant(
        _ANSWER,
        'return answer["content"][1]["text"]',
        (rules.answers, rules.reports_usage, rules.keeps_thinking),
        "It returns a str.",
    ),
    "an empty answer": Mutant(
        '[own(block) for block in answer["content"]]',
        "[]",
        (rules.answers, rules.keeps_thinking),
        "Its content is empty.",
    ),
    "no usage": Mutant(", usage=usage)", ")", (rules.reports_usage,), "The response has no usage."),
    "a sum of something else": Mutant(
        '+ counted["output_tokens"]', "+ 1", (rules.reports_usage,), "total_tokens is 22; input and output are 34."
    ),
    "less than nothing": Mutant(
        'counted["input_tokens"]', '-counted["input_tokens"]', (rules.reports_usage,), "A number of tokens is negative"
    ),
    "thinking without its signature in the answer": Mutant(
        'signature=block["signature"]', "signature=None", (rules.keeps_thinking,), "is not in the response."
    ),
    "a request that is shortened": Mutant(
        '        body = {"model"',
        '        request.messages.pop(0)\n        body = {"model"',
        (rules.leaves_the_request, wire.sends_the_conversation),
        "After the call its 'messages' is changed.",
    ),
    "thinking without its signature in the request": Mutant(
        '"signature": block.signature',
        '"signature": ""',
        (wire.sends_the_signature,),
        "The signature of the thinking block is not in the request's body.",
    ),
    "results without ids": Mutant(
        'message.tool_call_id, "content"',
        '"", "content"',
        (wire.sends_the_conversation,),
        "The id toolu_first17 is not both at its call and at its result.",
    ),
    "no results": Mutant(
        '"content": message.content}',
        '"content": ""}',
        (wire.sends_the_conversation,),
        "In the request's body the text of a tool's result is missing.",
    ),
    "an error of its own": Mutant(
        _RAISED,
        "            raise RuntimeError('refused')\n",
        (wire.raises_llm_errors,),
        "After HTTP status 400 it raises RuntimeError: refused (provider_web.py, line",
    ),
    "an error that is an answer": Mutant(
        _RAISED,
        "            return {'usage': {'input_tokens': 0, 'output_tokens': 0}, 'content': []}\n",
        (wire.raises_llm_errors,),
        "After HTTP status 400 it returns an answer.",
    ),
    "an error that is tried for ever": Mutant(
        _RAISED,
        "    " + _EVER,
        (wire.raises_llm_errors,),
        "After HTTP status 400 it does not end within 1 seconds.",
        limit_s=1.0,
    ),
    "a cancellation that becomes an error": Mutant(
        "        except aiohttp.ClientError as e:\n",
        "        except (aiohttp.ClientError, asyncio.CancelledError) as e:\n",
        (wire.honours_cancellation,),
        "Cancelled, it raises ProviderUnavailableError: The service cannot be reached",
    ),
    "a cancellation that is not heeded": Mutant(
        "        except aiohttp.ClientError as e:\n",
        "        except asyncio.CancelledError:\n            await asyncio.sleep(2)\n            raise\n"
        "        except aiohttp.ClientError as e:\n",
        (wire.honours_cancellation,),
        "It continues after its cancellation.",
    ),
    "a cancellation that becomes an answer": Mutant(
        "        except aiohttp.ClientError as e:\n",
        "        except asyncio.CancelledError:\n"
        "            return {'usage': {'input_tokens': 0, 'output_tokens': 0}, 'content': []}\n"
        "        except aiohttp.ClientError as e:\n",
        (wire.honours_cancellation,),
        "Cancelled, it returns an answer instead of raising CancelledError.",
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_provider_that_breaks_a_rule_is_told_so(check_broken, broken):
    await check_broken("provider_web", broken)


def test_every_rule_for_providers_has_been_seen_broken():
    assert {broken.rules[0] for broken in BROKEN.values()} == {*rules.RULES, *wire.WIRE_RULES}


async def test_models_that_cannot_be_had_are_a_warning(examiner):
    path = examiner.changed(
        "provider_echo", ("        return [ModelInfo", "        raise OSError\n        return [ModelInfo")
    )
    report = await examiner.examine(path)
    [finding] = report.of("warning")
    assert finding.check == rules.lists_its_models.check
    assert finding.problem == "It raises OSError (provider_echo.py, line 18)."
    assert report.passed


async def test_models_that_do_not_come_are_a_warning(examiner):
    path = examiner.changed(
        "provider_echo", ("        return [ModelInfo", "        import asyncio\n" + _EVER + "        return [ModelInfo")
    )
    [finding] = (await examiner.examine(path, limit_s=0.3)).of("warning")
    assert finding.problem == "It does not end within 0.3 seconds."


async def test_what_is_sent_is_not_checked_where_nothing_is_sent(examiner):
    report = await examiner.examine(examiner.changed("provider_echo"))
    left = {finding.check for finding in report.of("not checked")}
    assert left == {rule.check for rule in (*wire.WIRE_RULES, rules.keeps_thinking)}
    assert report.passed


async def test_what_is_answered_is_not_checked_where_the_service_is_none_that_is_known(examiner):
    report = await examiner.examine(
        examiner.changed("provider_web", ("/v1/messages", "/v7/talk"), ("/v1/models", "/v7/all"))
    )
    left = {finding.check for finding in report.of("not checked")}
    not_answered = (rules.lists_its_models, rules.answers, rules.reports_usage, rules.keeps_thinking)
    assert left == {rule.check for rule in not_answered}
    assert report.passed
    assert not report.of("warning")


async def test_an_address_that_is_not_taken_from_base_url_leaves_what_is_sent_unchecked(examiner):
    path = examiner.changed("provider_web", ('config["base_url"]', '"http://127.0.0.1:9"'))
    report = await examiner.examine(path)
    left = {finding.check for finding in report.of("not checked")}
    assert left == {rule.check for rule in (*wire.WIRE_RULES, rules.answers, rules.reports_usage, rules.keeps_thinking)}
    [answers] = [f for f in report.of("not checked") if f.check == rules.answers.check]
    assert "has called nothing at the option `base_url`" in answers.problem


async def test_an_error_of_the_providers_own_before_it_sends_anything_is_a_failure(examiner):
    path = examiner.changed(
        "provider_web", ('        body = {"model"', '        request.nothing()\n        body = {"model"')
    )
    [finding, *_] = (await examiner.examine(path)).of("failed")
    assert finding.check == rules.answers.check
    assert "It raises AttributeError" in finding.problem


async def test_the_key_of_the_configuration_is_used_where_there_is_one(examiner):
    path = examiner.changed("provider_web", ("await asyncio.sleep(0)", 'assert config["api_key"] == "mine", config'))
    assert (await examiner.examine(path, config={"api_key": "mine"})).passed


async def test_a_provider_that_knows_no_base_url_is_mounted_without(examiner):
    path = examiner.changed(
        "provider_echo", ("    await coordinator", "    assert set(config) == {'api_key'}\n    await coordinator")
    )
    assert (await examiner.examine(path)).passed


async def test_a_provider_may_return_itself_instead_of_mounting(examiner):
    path = examiner.changed(
        "provider_echo", ('await coordinator.mount("providers", EchoProvider(), name="echo")', "return EchoProvider()")
    )
    report = await examiner.examine(path)
    assert report.passed
    assert report.subject.module_type == "provider"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("form", ["openai", "anthropic"])
async def test_the_service_in_the_place_of_the_real_one_speaks_as_it_does(form, streams):
    path = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages?beta=true"}[form]
    answer = service_answer(path, json.dumps({"stream": streams}).encode())
    assert answer is not None
    assert answer.content_type == ("text/event-stream" if streams else "application/json")
    assert TEXT in answer.body.decode()
