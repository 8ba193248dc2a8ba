"""The folders of conversations: copies of a template, private, limited in size."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from anthropic_server import AnthropicServer, message, text, tool_call
from structlog.testing import capture_logs

from connector import RunFailed
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ConfigError, InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig, load_config
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces
from service.store.disk_space import watching_disks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE, THERE = "T:C:1.0", "T:C:2.0"
MB = 1_000_000
BIG_TOOL = """
class Big:
    name, description, input_schema = "big", "Says much.", {"type": "object", "properties": {}}
    async def execute(self, input):
        return "".join(f"line {number}\\n" for number in range(600_000))

async def mount(coordinator, config):
    await coordinator.mount("tools", Big(), name="big")
"""


@pytest.fixture
async def model(monkeypatch) -> AsyncIterator[AnthropicServer]:
    """A model that answers `fine`."""
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.otherwise = lambda _: message(text("fine"))
        yield model


@pytest.fixture
def template(tmp_path: Path) -> Path:
    template = tmp_path / "template"
    (template / "plans").mkdir(parents=True)
    (template / "plans" / "may.md").write_text("in May")
    return template


def manager(workspace: WorkspaceConfig, *tools: ModuleConfig) -> InProcessSessionManager:
    persona = PersonaConfig(name="Alpha", emoji=":owl:")
    instance = InstanceConfig(persona=persona, tools=(ModuleConfig(module="tool-filesystem"), *tools))
    return InProcessSessionManager({"alpha": instance}, "provider-anthropic", Workspaces(workspace), MemoryStore())


def results_in(model: AnthropicServer) -> list[Any]:
    """Return the tool results in the last request to the model."""
    blocks = [
        block for row in model.bodies[-1]["messages"] if isinstance(row["content"], list) for block in row["content"]
    ]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def mode_of(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


async def test_what_cannot_be_copied_of_a_template_is_skipped_and_logged(tmp_path, template):
    (tmp_path / "secret.md").write_text("outside")
    (template / "dangling.md").symlink_to("gone.md")
    (template / "outside.md").symlink_to(tmp_path / "secret.md")
    (template / "plans" / "around").symlink_to(template)
    (template / "loop").symlink_to("loop")
    (template / "link.md").symlink_to("plans/may.md")
    (template / "same-plans").symlink_to("plans")
    os.mkfifo(template / "pipe")
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files", template=template))
    with capture_logs() as lines:
        await workspaces.check()
    async with asyncio.timeout(10):
        await workspaces.prepare(HERE)
    folder = workspaces.folder(HERE)
    assert files_in(folder) == ["link.md", "plans", "plans/may.md", "same-plans", "same-plans/may.md"]
    assert (folder / "link.md").read_text() == "in May"
    skipped = {line["path"]: line["problem"] for line in lines if line["event"] == "workspace.template_entry_skipped"}
    assert skipped == {
        "dangling.md": f"is a broken link to {template}/gone.md: No such file or directory",
        "loop": f"is a broken link to {template}/loop: Too many levels of symbolic links",
        "outside.md": f"links out of the template, to {tmp_path}/secret.md",
        "pipe": "is neither a file nor a folder",
        "plans/around": "links to a parent folder",
        "same-plans/around": "links to a parent folder",
    }


async def test_folders_are_for_the_service_alone_and_older_ones_become_so(tmp_path, template):
    root = tmp_path / "files"
    for folder in (root, root / "T-C-0.0"):
        folder.mkdir()
        folder.chmod(0o755)
    (template / "run.sh").touch(mode=0o755)
    template.chmod(0o755)
    for config in (WorkspaceConfig(root=root, template=template), WorkspaceConfig(root=tmp_path / "new")):
        workspaces = Workspaces(config)
        await workspaces.check()
        await workspaces.prepare(HERE)
        assert mode_of(config.root) == mode_of(workspaces.folder(HERE)) == 0o700
    assert mode_of(root / "T-C-0.0") == 0o700
    assert mode_of(root / "T-C-1.0" / "run.sh") == 0o755, "copies keep their modes"


@pytest.mark.parametrize("limit", [{"quota_mb": 1}, {"quota_files": 2}])
async def test_a_template_that_exceeds_the_quota_is_told_at_the_start(tmp_path, template, limit):
    (template / "large.bin").write_bytes(b"x" * (MB + 1))
    config = WorkspaceConfig(root=tmp_path / "files", template=template, **limit)
    with pytest.raises(
        ConfigError, match=r"workspace\.template: .* Increase workspace\.quota_files or workspace\.quota_mb"
    ):
        await manager(config).__aenter__()


async def test_a_template_that_grows_past_the_quota_is_not_copied_and_the_conversation_is_told(
    tmp_path, template, model
):
    config = WorkspaceConfig(root=tmp_path / "files", template=template, quota_mb=1)
    async with manager(config) as sessions:
        (template / "large.bin").write_bytes(b"x" * (MB + 1))
        with pytest.raises(RunFailed, match="the template of new workspace folders exceeds their size limit"):
            await sessions.execute("alpha", HERE, "hello")
    assert files_in(tmp_path / "files") == []


async def test_copies_of_the_template_that_were_interrupted_are_removed_when_they_are_old(tmp_path, template):
    old, new = (tmp_path / "files" / f".new-{name}" for name in ("abcdefgh", "stuvwxyz"))
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files", template=template))
    for is_at_start in (True, False):
        for folder in (old, new):
            (folder / "plans").mkdir(parents=True, exist_ok=True)
        os.utime(old, (0, 0))
        await (workspaces.check() if is_at_start else workspaces.prepare(HERE))
        assert new.exists()
        assert not old.exists()


async def test_the_limits_are_read_from_the_file_and_the_copy_of_the_template_counts(tmp_path, template, model):
    (template / "large.bin").write_bytes(b"x" * (MB - 100))
    path = tmp_path / "agents.yaml"
    path.write_text("workspace: {root: files, template: template, quota_mb: 1}")
    model.reply(tool_call("write_file", {"path": "a.md", "content": "x" * 200}))
    async with manager(load_config(path).workspace) as sessions:
        assert await sessions.execute("alpha", HERE, "write") == "fine"
        assert "may hold 1.0 MB, it holds 1.0 MB" in results_in(model)[0]
        model.reply(tool_call("write_file", {"path": "large.bin", "content": ""}))
        model.reply(tool_call("write_file", {"path": "a.md", "content": "x" * 200}))
        await sessions.execute("alpha", HERE, "make room")
    assert "Wrote a.md" in results_in(model)[-1]


async def test_a_folder_that_the_user_names_has_no_quota_of_a_workspace(tmp_path, model):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "large.bin").write_bytes(b"x" * 2 * MB)
    shared = ModuleConfig(module="tool-filesystem", config={"root": str(tmp_path / "shared")})
    model.reply(tool_call("write_file", {"path": "a.md", "content": "text"}))
    async with manager(WorkspaceConfig(root=tmp_path / "files", quota_mb=1), shared) as sessions:
        await sessions.execute("alpha", HERE, "write")
    assert "Wrote a.md" in results_in(model)[0]


async def test_without_room_for_a_new_folder_only_its_conversation_is_told_so(tmp_path, template, model):
    config = WorkspaceConfig(root=tmp_path / "files", template=template)
    await Workspaces(config).prepare(THERE)
    async with manager(config.model_copy(update={"reserve_mb": 10**9})) as sessions:
        with pytest.raises(RunFailed, match="The disk is full, so I cannot store the files of this conversation"):
            await sessions.execute("alpha", HERE, "hello")
        model.reply(tool_call("write_file", {"path": "a.md", "content": "text"}))
        assert await sessions.execute("alpha", THERE, "hello") == "fine"
    assert "Nothing was written: this needs 0.0 MB, the disk has" in results_in(model)[0]
    assert files_in(tmp_path / "files") == ["T-C-2.0", "T-C-2.0/plans", "T-C-2.0/plans/may.md"]


async def test_the_model_reads_on_in_the_file_of_a_large_result(tmp_path, model):
    (tmp_path / "big.py").write_text(BIG_TOOL)
    big = ModuleConfig(module="big", source=str(tmp_path / "big.py"))
    model.reply(tool_call("big"))

    def read_on(body: dict[str, Any]) -> list[Any]:
        results = results_in(model)
        if len(results) == 2:
            return message(text("fine"))
        path = results[0].rpartition("The whole result is in the file ")[2].partition(":")[0]
        return message(tool_call("read_file", {"path": path, "offset": 300_001, "limit": 2}))

    model.otherwise = read_on
    async with manager(WorkspaceConfig(root=tmp_path / "files"), big) as sessions:
        assert await sessions.execute("alpha", HERE, "look") == "fine"
    assert results_in(model)[1].startswith("line 300000\nline 300001\n[… The file continues.")


async def test_the_log_says_the_free_space_and_once_when_it_falls_below_the_reserve_or_rises_again(tmp_path):
    disk, lines = tmp_path / "disk", asyncio.Queue()
    disk.symlink_to(tmp_path)

    def hear(_logger: Any, _method: str, line: dict[str, Any]) -> dict[str, Any]:
        lines.put_nowait(line)
        return line

    with capture_logs(processors=[hear]) as logged:
        async with asyncio.timeout(10), watching_disks({"store": disk}, 1, {}, every_s=0.005):
            assert (await lines.get())["store_free_mb"] > 1
            disk.unlink()
            disk.symlink_to("/proc")  # which has no free space
            low = await lines.get()
            assert (low["event"], low["place"], low["path"], low["free_mb"]) == ("disk.low", "store", str(disk), 0)
            await asyncio.sleep(0.05)
            disk.unlink()
            disk.symlink_to(tmp_path)
            assert (await lines.get())["event"] == "disk.recovered"
    assert [line["event"] for line in logged] == ["disk.space", "disk.low", "disk.recovered"]


async def test_the_health_check_over_http_reports_the_free_space(slack, stage, tmp_path):
    config = tmp_path / "config.yaml"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config.write_text(
        "instances: {a: {persona: {name: A, emoji: ':owl:'}}}\nworkspace: {root: files}\n"
        f"slack: {{transport: http, listen: '127.0.0.1:{port}'}}\n"
    )
    async with stage.serving("--config", str(config), SLACK_SIGNING_SECRET=slack.signing_secret) as service:
        await service.says("service.ready")
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/healthz") as response:
            assert response.status == 200
            first, *lines = (await response.text()).splitlines()
    assert (first, sorted(line.split()[0] for line in lines)) == ("ok", ["store_free_mb", "workspaces_free_mb"])
    assert all(int(line.split()[1]) > 0 for line in lines)
