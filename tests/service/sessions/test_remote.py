"""The gRPC service of the sessions, and the connector's side of it."""

from __future__ import annotations

import asyncio
import subprocess

import grpc
import grpc.aio
import pytest
from anthropic_server import Gate, text, tool_call
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from service_process import free_address
from session_tests import HERE, ProgressRecorder, steering

from connector.protocols import LeaseLost, PersonAnswer, RunFailed
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ModuleConfig
from service.config.sessions import SessionsConfig
from service.sessions.host import NOTIFY, LocalHost
from service.sessions.remote import sessions_pb2 as pb
from service.sessions.remote.client import connected_sessions
from service.sessions.remote.listening import listening
from service.sessions.remote.server import RemoteHost
from service.sessions.remote.sessions_pb2_grpc import SessionServiceStub

NAME = "amplifier.sessions.v1.SessionService"
FULL = ModuleConfig(module="loop-interactive", config={"max_waiting": 1})


@pytest.fixture
def served(local_manager):
    """Serve the sessions of a manager, with these keys of the section `sessions`; gives the section of the service."""

    class Served:
        def __init__(self, tls=None, **options):
            self.config = SessionsConfig(listen=free_address(), **(tls or {}))
            self.scheme, self.host, self.store = "grpcs" if tls else "grpc", RemoteHost(), MemoryStore()
            self.sessions = local_manager(store=self.store, options={"host": self.host}, **options)
            self.serving = listening(self.config, self.sessions, self.host, 1)

        async def __aenter__(self):
            await self.sessions.__aenter__()
            await self.serving.__aenter__()
            return self

        async def __aexit__(self, *error):
            await self.serving.__aexit__(*error)
            await self.sessions.__aexit__(*error)

        def connected(self, functions=None, **keys):
            address = f"{self.scheme}://{self.config.listen}"
            config = SessionsConfig(address=address, **keys)
            return connected_sessions(config, self.sessions._instances, self.store, LocalHost(functions or {}))

        def channel(self):
            return grpc.aio.insecure_channel(self.config.listen)

    return Served


@pytest.fixture
def certificates(tmp_path):
    """An authority, and the certificates that it has issued to both sides."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)  # noqa: S603, S607

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "1")
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return {
        name: {
            "certificate": tmp_path / f"{name}.pem",
            "key": tmp_path / f"{name}.key",
            "authority": tmp_path / "ca.pem",
        }
        for name in ("server", "client")
    }


async def test_with_tls_only_a_service_with_a_certificate_can_run_agents(model, served, certificates):
    async with served(tls=certificates["server"]) as there:
        async with there.connected(**certificates["client"]) as sessions:
            assert await sessions.execute("alpha", HERE, "hello", message_id=HERE) == "fine"
        progress = ProgressRecorder()
        async with there.connected(authority=certificates["client"]["authority"]) as stranger:
            run = asyncio.create_task(stranger.execute("alpha", "T:C:2.0", "hello", progress, message_id="T:C:2.0"))
            while not progress.data("disconnected"):  # noqa: ASYNC110 - the recorder has no event
                await asyncio.sleep(0.02)
            stranger.suspend("alpha", "T:C:2.0")
            assert await run == ""
    assert len(model.requests) == 1


async def test_health_and_reflection_name_the_service(served):
    async with served() as there, there.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", NAME):
            found = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert found.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        reflecting = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([asked]))
        listed = (await anext(aiter(reflecting))).list_services_response.service
        assert NAME in {each.name for each in listed}


async def test_unary_calls_run_and_resume_and_a_deadline_suspends(model, served):
    half, where = Gate(), pb.Session(instance="alpha", conversation=HERE, fence=1)
    async with served() as there, there.channel() as channel:
        service = SessionServiceStub(channel)
        model.reply(text("Half of ", half, "the answer"))
        request = pb.ExecuteRequest(session=where, prompt=pb.Message(id=HERE, text="hello"))
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await service.Execute(request, timeout=1)
        assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        where.fence = 2
        delivered = await service.Delivered(pb.DeliveredRequest(session=where, ids=[HERE, "T:C:9.0"]))
        assert list(delivered.ids) == [HERE]
        assert (await service.Resume(pb.ResumeRequest(session=where))).answer == "fine"
        where.instance = "nobody"
        with pytest.raises(grpc.aio.AioRpcError, match="no longer one of my agents") as failed:
            await service.Execute(request.__class__(session=where, prompt=request.prompt))
        assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_message_for_which_there_is_no_room_is_offered_again(model, served):
    gate, again = Gate(), Gate()
    async with served(orchestrator=FULL) as there, there.connected() as sessions:
        model.reply(gate, tool_call("list_files"))
        model.reply(again, tool_call("list_files"))
        progress = ProgressRecorder()
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello", progress, message_id=HERE))
        await gate.reached.wait()
        for number in (2, 3):
            assert sessions.inject("alpha", HERE, **steering(f"T:C:{number}.0", f"message {number}", number))
        assert await sessions.edit("alpha", HERE, "T:C:3.0", "changed")  # it waits at this side
        gate.open()
        await again.reached.wait()
        again.open()
        assert await run == "fine"
        assert await sessions.delivered("alpha", HERE, ["T:C:2.0", "T:C:3.0"]) == {"T:C:2.0", "T:C:3.0"}
    assert [data["ids"] for data in progress.data("injection:applied")] == [["T:C:2.0"], ["T:C:3.0"]]
    assert "changed" in str(model.bodies[-1]["messages"])


class SlowSessions:
    """Sessions whose withdrawals wait for `goes_on`."""

    def __init__(self, sessions):
        self._sessions, self.goes_on = sessions, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._sessions, name)

    async def withdraw(self, *where):
        await self.goes_on.wait()
        return await self._sessions.withdraw(*where)


async def test_a_message_that_is_withdrawn_too_late_is_read_before_its_correction(model, served, monkeypatch):
    gate, there, progress = Gate(), served(), ProgressRecorder()
    slow = SlowSessions(there.sessions)
    there.serving = listening(there.config, slow, there.host, 1)
    async with there, there.connected() as sessions:
        model.reply(gate, tool_call("list_files"))
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello", progress, message_id=HERE))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0", "paint it", 2))
        with monkeypatch.context() as changed:
            changed.setattr("service.sessions.remote.remote_run._RECEIPT_WITHIN_S", 0.01)
            assert not await sessions.withdraw("alpha", HERE, "T:C:2.0")
        assert sessions.inject("alpha", HERE, **steering("T:C:3.0", "never mind", 3))
        slow.goes_on.set()
        for text_ in ("do not", "do not paint it"):  # the other side has the message again after the second one
            assert await sessions.edit("alpha", HERE, "T:C:3.0", text_)
        gate.open()
        assert await run == "fine"
    assert [data["ids"] for data in progress.data("injection:applied")] == [["T:C:2.0", "T:C:3.0"]]


async def test_the_owner_with_the_higher_token_takes_the_run(model, served):
    gate = Gate()
    model.reply(gate, text("too late"))
    async with served() as there, there.connected() as one, there.connected() as two:
        run = asyncio.create_task(one.execute("alpha", HERE, "hello", message_id=HERE, fence=1))
        await gate.reached.wait()
        assert await two.resume("alpha", HERE, fence=2) == "fine"
        with pytest.raises(LeaseLost):
            await run
        with pytest.raises(LeaseLost):
            await one.resume("alpha", HERE, fence=1)


async def test_a_session_calls_functions_of_the_service_and_asks_people(model, served):
    noted = []

    class Ana:
        owner, unbegun = "U0ANA", frozenset({"call"})

        async def ask(self, request):
            return PersonAnswer("click", (0,), ("U0ANA",), (request.title,))

        async def asked_s(self, request_id):
            return 3.0 if request_id == "call" else None

        def answer_by_message(self, request_id):
            noted.append(request_id)

        async def start(self, request_id, digest, *, repeatable=False):
            return "It has begun before." if digest == "old" else None

    async def note(key, arguments):
        if not arguments["text"]:
            raise ValueError("A note needs some text.")
        noted.append((key.conversation_id, arguments["text"]))
        return {}

    gate = Gate()
    async with served() as there, there.connected({NOTIFY: note}) as sessions:
        model.reply(gate, text("fine"))
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello", message_id=HERE, people=Ana(), fence=1))
        await gate.reached.wait()
        (active,) = there.sessions._runs.values()
        people, session = active.people, active.session
        await session.coordinator.get_capability(NOTIFY)("it is done")
        with pytest.raises(ValueError, match="needs some text"):
            await session.coordinator.get_capability(NOTIFY)("")
        assert (people.owner, people.unbegun) == ("U0ANA", {"call"})
        assert (await people.asked_s("call"), await people.asked_s("other")) == (3.0, None)
        assert await people.start("call", "old") == "It has begun before."
        assert await people.start("call", "new") is None
        assert people.unbegun == frozenset()
        gate.open()
        assert await run == "fine"
        await session.coordinator.get_capability(NOTIFY)("and later")  # no run is active
    assert noted == [(HERE, "it is done"), (HERE, "and later")]


async def test_a_context_without_a_log_is_asked_over_the_wire(model, served):
    async with served(context=ModuleConfig(module="context-simple")) as there, there.connected() as sessions:
        with pytest.raises(RunFailed, match="lost my work"):
            await sessions.delivered("alpha", HERE, [HERE])
        await sessions.execute("alpha", HERE, "hello", message_id=HERE)
        assert await sessions.delivered("alpha", HERE, [HERE, "T:C:2.0"]) == {HERE}
