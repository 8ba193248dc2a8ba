from __future__ import annotations

import json

import pytest

from orchestrator_interactive.validation.provider import ANSWER_CALL, ANSWER_TEXT, service_answer

_SERVICE_RULES = {"sends_the_conversation", "raises_llm_errors", "honours_cancellation"}
_ANSWER_RULES = {"answers", "reports_usage", "keeps_thinking"}


def not_checked(report) -> set[str]:
    return {finding.key for finding in report.of("not checked")}


async def test_requests_are_not_checked_of_a_provider_without_a_service(checker):
    report = await checker.report(checker.changed("provider_echo"))
    assert not_checked(report) == _SERVICE_RULES | {"keeps_thinking"}
    assert report.passed


async def test_answers_are_not_checked_of_an_unknown_service(checker):
    changes = ("/v1/messages", "/v7/talk"), ("/v1/models", "/v7/all")
    report = await checker.report(checker.changed("provider_web", *changes))
    assert not_checked(report) == _ANSWER_RULES | {"lists_its_models"}
    assert report.passed
    assert not report.of("warning")


async def test_a_provider_that_does_not_read_base_url_is_told_to_do_so(checker):
    path = checker.changed("provider_web", ('config["base_url"]', '"http://127.0.0.1:9"'))
    report = await checker.report(path)
    assert not_checked(report) == _SERVICE_RULES | _ANSWER_RULES
    [finding] = [finding for finding in report.findings if finding.key == "answers"]
    assert "has called nothing at the option `base_url`" in finding.problem


async def test_an_error_before_the_request_is_a_failure(checker):
    path = checker.changed(
        "provider_web", ('        body = {"model"', '        request.nothing()\n        body = {"model"')
    )
    [finding, *_] = (await checker.report(path)).of("failed")
    assert finding.key == "answers"
    assert "It raises AttributeError" in finding.problem


@pytest.mark.parametrize(
    ("example", "change", "config"),
    [
        ("provider_web", ("await asyncio.sleep(0)", 'assert config["api_key"] == "mine", config'), {"api_key": "mine"}),
        (
            "provider_echo",
            ("    await coordinator", "    assert set(config) == {'api_key'}\n    await coordinator"),
            {},
        ),
        (
            "provider_echo",
            ("    await coordinator", "    assert set(config) == {'base_url'}\n    await coordinator"),
            {},
        ),
        (
            "provider_echo",
            ('await coordinator.mount("providers", EchoProvider(), name="echo")', "return EchoProvider()"),
            {},
        ),
    ],
    ids=["a key of its own", "no option base_url", "no option api_key", "returned instead of mounted"],
)
async def test_a_provider_is_mounted_with_the_options_that_it_knows(checker, example, change, config):
    report = await checker.report(checker.changed(example, change), config=config)
    assert report.passed
    assert report.subject.module_type == "provider"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages?beta=true"])
async def test_the_mock_server_answers_in_the_formats_of_both_apis(path, streams):
    content_type, answer = service_answer(path, json.dumps({"stream": streams}).encode())
    assert content_type == ("text/event-stream" if streams else "application/json")
    assert ANSWER_TEXT.encode() in answer
    assert ANSWER_CALL.id.encode() in answer
