"""What a session asks people: each request has an identity, a digest and a text of its own."""

from __future__ import annotations

import pytest

from connector.protocols import PersonAnswer
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.kernel.tool_support import ApprovalDetails, CallContext, current_call
from orchestrator_interactive.testing import TestCoordinator
from service.sessions.people import SessionPeople

KEY = Key("T1:C1:1700000000.000100", "alpha")
OPTIONS = ["Allow", "Deny"]


class Asked:
    """People who allow everything."""

    owner = "U1"

    def __init__(self, always=""):
        self.requests = []
        self._always = always

    async def ask(self, request):
        self.requests.append(request)
        return PersonAnswer("click", (0,), ("U1",), ("Ana",), "", self._always)


class Broken(Asked):
    async def ask(self, request):
        raise OSError("the disk is full")


def session(people):
    return SessionPeople(KEY, lambda: people, rules=None, without_secrets=lambda text: text.replace("hunter2", "…"))


@pytest.fixture
def call():
    context = CallContext("c1", "rm", {"path": "a"}, on_awaiting=lambda: None)
    token = current_call.set(context)
    yield context
    current_call.reset(token)


async def test_an_answer_without_a_call_is_for_one_request_only():
    people = Asked()
    for _ in range(2):
        assert await session(people).request_approval("Delete it?\nAll of it.", OPTIONS, 5.0, "deny") == "Allow"
    first, second = people.requests
    assert first.id != second.id
    assert (first.title, first.details, first.timeout_s, first.default) == ("Delete it?", "All of it.", 5.0, 1)


async def test_a_request_before_the_call_is_about_the_call_and_one_about_its_result_is_not(call):
    people = Asked()
    await session(people).request_approval("May it run?", OPTIONS, 5.0, "deny")
    call.has_begun = True
    await session(people).request_approval("May the model read it?", OPTIONS, 5.0, "deny")
    before, after = people.requests
    assert before.id == "c1"
    assert after.id.startswith("c1:result:")


async def test_a_call_of_an_asked_agent_with_the_id_of_another_call_is_another_request(call):
    people, host, agent = Asked(), TestCoordinator(), TestCoordinator()
    session(people).register(host)
    host.get_capability("people.register")(agent, "b7")
    for each in (host, agent):
        assert await each.approval_system.request_approval("May it run?", OPTIONS, 5.0, "deny") == "Allow"
    assert [each.id for each in people.requests] == ["c1", "b7/c1"]


async def test_details_are_for_one_request_and_show_the_arguments_as_they_are_now(call):
    async def render(arguments):
        return f"{arguments['path']}, hunter2"

    call.approval = ApprovalDetails(render, "It deletes data", "default", ("anyone",), 2, ("conversation",))
    call.arguments = {"path": "b"}
    people = Asked()
    await session(people).request_approval("Allow rm?", OPTIONS, 5.0, "deny")
    (request,) = people.requests
    assert (request.details, request.risk, request.needed, request.approvers) == (
        "b, …",
        "It deletes data",
        2,
        ("anyone",),
    )
    assert call.approval is None
    assert call.decision["by"] == ["U1"]


@pytest.mark.parametrize("default", ["allow", "deny"])
async def test_what_fails_is_denied_whatever_the_default_is(default):
    answer = await session(Broken()).request_approval("Delete it?", OPTIONS, 5.0, default)
    assert answer == "Deny: No one could be asked, so it is denied."
    assert (await session(None).request_approval("Delete it?", OPTIONS, 5.0, default)).startswith(
        "Deny: No run is active"
    )


async def test_allow_always_of_another_hook_is_remembered_by_that_hook():
    people = Asked(always="session")
    options = ["Allow once", "Allow always", "Deny"]
    assert await session(people).request_approval("Delete it?", options, 5.0, "deny") == "Allow always"
