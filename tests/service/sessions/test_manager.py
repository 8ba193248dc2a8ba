from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic_server import AnthropicServer, Gate, message, text

from connector import Refused, RunFailed, SteeringMessage
from connector.protocols import MessageAuthor, QueueFull
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ConfigError, InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

HERE = "T:C:1.0"
ALPHA = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"))


@pytest.fixture
async def model(monkeypatch) -> AsyncIterator[AnthropicServer]:
    """A model that says `fine` whatever it is asked."""
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.otherwise = lambda _: message(text("fine"))
        yield model


def manager(
    root: Path, template: Path | None = None, names: tuple[str, ...] = ("alpha",), **loop_options: Any
) -> InProcessSessionManager:
    workspaces = Workspaces(WorkspaceConfig(root=root, template=template))
    loop = ModuleConfig(module="loop-interactive", config=loop_options)
    instance = ALPHA.model_copy(update={"orchestrator": loop})
    return InProcessSessionManager(dict.fromkeys(names, instance), "provider-anthropic", workspaces, MemoryStore())


class Ends:
    """Remember how runs end, and how many messages wait then."""

    def __init__(self) -> None:
        self.statuses: list[str] = []
        self.waiting: list[int] = []

    async def hear(self, event: str, data: dict) -> None:
        if event == "complete":
            self.statuses.append(data["status"])
            self.waiting.append(data["waiting"])


async def test_a_stop_of_a_run_in_its_set_up_does_not_stop_the_next_run(model, tmp_path):
    ends = Ends()
    async with manager(tmp_path) as sessions:
        stopped = asyncio.create_task(sessions.execute("alpha", HERE, "hello", ends.hear))
        await asyncio.sleep(0)  # it has begun: its set-up is on in a thread
        assert sessions.stop("alpha", HERE)
        assert await stopped == ""
        assert await sessions.execute("alpha", HERE, "hello again", ends.hear)
    assert ends.statuses == ["cancelled", "success"]
    assert len(model.requests) == 1


async def test_a_set_up_that_failed_leaves_nothing_to_stop(model, tmp_path):
    root = tmp_path / "files"
    async with manager(root) as sessions:
        root.rmdir()
        root.write_text("in the way")
        with pytest.raises(RunFailed, match="files"):
            await sessions.execute("alpha", HERE, "hello")
        assert not sessions.stop("alpha", HERE)
        root.unlink()
        assert await sessions.execute("alpha", HERE, "hello again") == "fine"


async def test_a_stop_at_whatever_instant_of_a_run_does_nothing_to_the_next_one(model, tmp_path):
    instant, ended, cut = 0, False, 0
    async with manager(tmp_path) as sessions:
        while not ended:
            ends = Ends()
            run = asyncio.create_task(sessions.execute("alpha", HERE, "hello", ends.hear))
            for _ in range(instant):
                await asyncio.sleep(0)
            ended = run.done()
            hit = sessions.stop("alpha", HERE, immediate=bool(instant % 2))
            await run
            assert hit or ends.statuses == ["success"]
            cut += ends.statuses == ["cancelled"]
            await sessions.execute("alpha", HERE, "hello again", ends.hear)
            assert ends.statuses[1:] == ["success"], instant
            instant += 1 + instant // 20
    assert not hit
    assert cut > 10


async def test_a_run_gives_up_what_it_has_not_read_and_the_next_one_may_be_given_it(model, tmp_path):
    ends, gate, again = Ends(), Gate(), Gate()
    steer = SteeringMessage("T:C:2.0", "and that", MessageAuthor("U0ANA", "Ana"), written_s=2.0)
    async with manager(tmp_path) as sessions:
        model.reply(gate, text("too late"))
        first = asyncio.create_task(sessions.execute("alpha", HERE, "hello", ends.hear))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, steer)
        sessions.stop("alpha", HERE)
        await first
        assert not sessions.withdraw("alpha", HERE, steer.id)
        model.reply(again, text("fine"))
        second = asyncio.create_task(sessions.execute("alpha", HERE, "hello again", ends.hear))
        await again.reached.wait()
        assert "and that" not in str(model.bodies[-1]["messages"])
        assert sessions.inject("alpha", HERE, steer)
        again.open()
        await second
    assert (ends.statuses, ends.waiting) == (["cancelled", "success"], [1, 0])
    assert str(model.bodies[-1]["messages"]).count("and that") == 1


async def test_a_steer_that_waits_can_be_edited_and_taken_back(model, tmp_path):
    gate = Gate()
    async with manager(tmp_path) as sessions:
        model.reply(gate, text("fine"))
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello"))
        await gate.reached.wait()
        for number, words in enumerate(("first", "second", "third")):
            assert sessions.inject(
                "alpha", HERE, SteeringMessage(f"T:C:{number}", words, MessageAuthor("U0ANA", "Ana"), written_s=number)
            )
        assert sessions.edit("alpha", HERE, "T:C:0", "changed")
        with pytest.raises(Refused, match="needs some text"):
            sessions.edit("alpha", HERE, "T:C:2", " ")
        assert sessions.withdraw("alpha", HERE, "T:C:1")
        assert not sessions.withdraw("alpha", HERE, "T:C:1")
        gate.open()
        await run
        assert not sessions.edit("alpha", HERE, "T:C:0", "too late")
    said = str(model.bodies[-1]["messages"])
    assert [word in said for word in ("first", "changed", "second", "third")] == [False, True, False, True]


async def test_steers_are_read_in_the_order_in_which_they_were_written(model, tmp_path):
    gate = Gate()
    async with manager(tmp_path) as sessions:
        model.reply(gate, text("fine"))
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello"))
        await gate.reached.wait()
        for word, written_s in (("later", 3.0), ("earlier", 2.0)):
            assert sessions.inject(
                "alpha", HERE, SteeringMessage(f"T:C:{written_s}", word, MessageAuthor("U0ANA"), written_s)
            )
        gate.open()
        await run
    said = str(model.bodies[-1]["messages"])
    assert said.index("earlier") < said.index("later")


async def test_a_message_too_many_can_go_in_once_the_loop_has_read_what_came_before(model, tmp_path):
    gate = Gate()
    async with manager(tmp_path, max_waiting=1) as sessions:
        model.reply(gate, text("fine"))
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello"))
        await gate.reached.wait()
        assert sessions.inject(
            "alpha", HERE, SteeringMessage("T:C:2.0", "one", MessageAuthor("U0ANA", "Ana"), written_s=2.0)
        )
        with pytest.raises(QueueFull):
            sessions.inject(
                "alpha", HERE, SteeringMessage("T:C:3.0", "one too many", MessageAuthor("U0ANA", "Ana"), written_s=3.0)
            )
        gate.open()
        await run


async def test_a_stop_without_a_run_does_nothing_to_the_next_one(model, tmp_path):
    ends = Ends()
    async with manager(tmp_path) as sessions:
        assert not sessions.stop("alpha", HERE)
        await sessions.execute("alpha", HERE, "hello", ends.hear)
        assert not sessions.stop("alpha", HERE, immediate=True)
        await sessions.execute("alpha", HERE, "hello", ends.hear)
    assert ends.statuses == ["success", "success"]


async def test_a_steer_before_the_first_run_and_after_a_run_is_not_taken(model, tmp_path):
    steer = SteeringMessage("T:C:2.0", "and that", MessageAuthor("U0ANA"), written_s=2.0)
    async with manager(tmp_path) as sessions:
        assert not sessions.inject("alpha", HERE, steer)
        await sessions.execute("alpha", HERE, "hello")
        assert not sessions.inject("alpha", HERE, steer)


async def test_a_template_that_could_not_be_copied_whole_is_not_taken_for_whole_the_next_time(model, tmp_path):
    template = tmp_path / "template"
    template.mkdir()
    (template / "notes.md").write_text("notes")
    (template / "gone.md").symlink_to(tmp_path / "nowhere")
    async with manager(tmp_path / "files", template) as sessions:
        outcomes = []
        for _ in range(2):
            try:
                outcomes.append(bool(await sessions.execute("alpha", HERE, "hello")))
            except RunFailed as e:
                outcomes.append(str(e))
    assert outcomes[0] == outcomes[1], "the same folder is unusable first and then fine"


@pytest.mark.parametrize("inside", [".", "files", "far/below"])
async def test_a_template_that_holds_the_root_is_told_at_the_start(tmp_path, inside):
    with pytest.raises(ConfigError, match="inside workspace"):
        await manager(tmp_path / inside, tmp_path).__aenter__()


async def test_a_template_inside_the_root_is_copied(model, tmp_path):
    template = tmp_path / "template"
    template.mkdir()
    (template / "notes.md").write_text("notes")
    async with manager(tmp_path, template) as sessions:
        assert await sessions.execute("alpha", HERE, "hello") == "fine"
    assert {path.name for path in tmp_path.iterdir()} == {"template", "T-C-1.0"}


async def test_a_root_that_cannot_be_written_to_is_told_at_the_start(tmp_path):
    (tmp_path / "files").write_text("in the way")
    with pytest.raises(ConfigError, match="is not writable"):
        await manager(tmp_path / "files").__aenter__()


async def test_a_folder_is_whole_when_it_can_be_seen_and_two_may_prepare_it(tmp_path):
    template = tmp_path / "template"
    template.mkdir()
    for number in range(40):
        (template / f"{number}.md").write_text("notes")
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files", template=template))

    async def prepared() -> int:
        await workspaces.prepare(HERE)
        return len(list(workspaces.folder(HERE).iterdir()))

    assert await asyncio.gather(*(prepared() for _ in range(8))) == [40] * 8
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["T-C-1.0"]


async def test_two_instances_in_one_conversation_have_sessions_of_their_own_and_share_its_folder(model, tmp_path):
    async with manager(tmp_path, names=("alpha", "beta")) as sessions:
        for name in ("alpha", "beta"):
            await sessions.execute(name, HERE, f"hello {name}")
    assert "hello alpha" not in str(model.bodies[-1]["messages"])
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def odd_module(tmp_path, monkeypatch) -> Callable[[str], str]:
    """Install a module whose `mount` does this; gives its name."""

    def install(body: str) -> str:
        (tmp_path / "odd_module.py").write_text(f"async def mount(coordinator, config):\n    {body}\n")
        info = tmp_path / "odd_module-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-module\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[amplifier.modules]\nodd = odd_module:mount\n")
        monkeypatch.delitem(sys.modules, "odd_module", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        return "odd"

    return install


@pytest.mark.parametrize("error", ["RuntimeError('on\\ntwo lines')", "KeyError()", "OSError(2, 'gone')"])
@pytest.mark.parametrize("place", ["orchestrator", "context", "providers", "tools", "hooks"])
async def test_whatever_a_module_raises_at_its_mount_is_told_in_one_line(tmp_path, odd_module, place, error):
    module = ModuleConfig(module=odd_module(f"raise {error}"))
    instance = ALPHA.model_copy(update={place: module if place in {"orchestrator", "context"} else (module,)})
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
    with pytest.raises(ConfigError, match=r"^instances\.alpha: odd: .+$"):
        await InProcessSessionManager({"alpha": instance}, "provider-demo", workspaces, MemoryStore()).__aenter__()


async def test_a_tool_module_that_mounts_nothing_is_told_and_a_provider_without_a_key_is_not(tmp_path, odd_module):
    odd = ModuleConfig(module=odd_module("return None"))
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
    providers = (odd, ModuleConfig(module="provider-demo"))
    async with InProcessSessionManager(
        {"alpha": ALPHA.model_copy(update={"providers": providers})}, "provider-demo", workspaces, MemoryStore()
    ):
        pass
    with pytest.raises(ConfigError, match="the module 'odd' mounts nothing"):
        await InProcessSessionManager(
            {"alpha": ALPHA.model_copy(update={"tools": (odd,)})}, "provider-demo", workspaces, MemoryStore()
        ).__aenter__()
