"""The folders of conversations: copies of a template, private, limited in size."""

from __future__ import annotations

import asyncio
import os

import pytest
from anthropic_server import message, text, tool_call
from session_tests import HERE
from structlog.testing import capture_logs

from connector import RunFailed
from service.config.config import ModuleConfig, WorkspaceConfig, load_config
from service.config.config_errors import ConfigError
from service.sessions.workspaces import Workspaces

THERE = "T:C:2.0"
MB = 1_000_000
BIG_TOOL = """
class Big:
    name, description, input_schema = "big", "Returns much.", {"type": "object", "properties": {}}
    async def execute(self, input):
        return "".join(f"line {number}\\n" for number in range(600_000))

async def mount(coordinator, config):
    await coordinator.mount("tools", Big(), name="big")
"""


@pytest.fixture
def template(tmp_path):
    template = tmp_path / "template"
    (template / "plans").mkdir(parents=True)
    (template / "plans" / "may.md").write_text("in May")
    return template


@pytest.fixture
def config(tmp_path):
    return lambda **options: WorkspaceConfig(root=tmp_path / "files", **options)


@pytest.fixture
def start(manager):
    """Create a manager of an agent with the file tools, for this workspace configuration."""
    return lambda config, *tools: manager(workspace=config, tools=(ModuleConfig(module="tool-filesystem"), *tools))


def results_in(model):
    """Return the tool results in the last request to the model."""
    rows = [row["content"] for row in model.bodies[-1]["messages"] if isinstance(row["content"], list)]
    return [block["content"] for blocks in rows for block in blocks if block["type"] == "tool_result"]


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def mode_of(folder):
    return folder.stat().st_mode & 0o777


async def test_template_entries_that_cannot_be_copied_are_skipped_and_logged(tmp_path, config, template):
    (tmp_path / "secret.md").write_text("outside")
    (template / "dangling.md").symlink_to("gone.md")
    (template / "outside.md").symlink_to(tmp_path / "secret.md")
    (template / "plans" / "around").symlink_to(template)
    (template / "loop").symlink_to("loop")
    (template / "link.md").symlink_to("plans/may.md")
    (template / "same-plans").symlink_to("plans")
    os.mkfifo(template / "pipe")
    workspaces = Workspaces(config(template=template))
    with capture_logs() as lines:
        await workspaces.check()
    async with asyncio.timeout(50):
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


async def test_new_and_existing_folders_are_private(tmp_path, config, template):
    root = tmp_path / "files"
    for folder in (root, root / "T-C-0.0"):
        folder.mkdir()
        folder.chmod(0o755)
    (template / "run.sh").touch(mode=0o755)
    template.chmod(0o755)
    for each in (config(template=template), WorkspaceConfig(root=tmp_path / "new")):
        workspaces = Workspaces(each)
        await workspaces.check()
        await workspaces.prepare(HERE)
        assert mode_of(each.root) == mode_of(workspaces.folder(HERE)) == 0o700
    assert mode_of(root / "T-C-0.0") == 0o700
    assert mode_of(root / "T-C-1.0" / "run.sh") == 0o755, "copies keep their modes"


@pytest.mark.parametrize("limit", [{"quota_mb": 1}, {"quota_files": 2}])
async def test_a_template_that_exceeds_the_quota_is_a_config_error(config, template, limit):
    (template / "large.bin").write_bytes(b"x" * (MB + 1))
    limited = config(template=template, **limit)
    with pytest.raises(
        ConfigError, match=r"workspace\.template: .* Increase workspace\.quota_files or workspace\.quota_mb"
    ):
        await Workspaces(limited).check()


async def test_a_template_that_grows_past_the_quota_fails_the_run(tmp_path, config, start, template, model):
    limited = config(template=template, quota_mb=1)
    async with start(limited) as sessions:
        (template / "large.bin").write_bytes(b"x" * (MB + 1))
        with pytest.raises(RunFailed, match="the template of new workspace folders exceeds their size limit"):
            await sessions.execute("alpha", HERE, "hello")
    assert files_in(tmp_path / "files") == []


async def test_old_interrupted_copies_of_the_template_are_removed(tmp_path, config, template):
    old, new = (tmp_path / "files" / f".new-{name}" for name in ("abcdefgh", "stuvwxyz"))
    workspaces = Workspaces(config(template=template))
    for is_at_start in (True, False):
        for folder in (old, new):
            (folder / "plans").mkdir(parents=True, exist_ok=True)
        os.utime(old, (0, 0))
        await (workspaces.check() if is_at_start else workspaces.prepare(HERE))
        assert new.exists()
        assert not old.exists()


async def test_a_deleted_folder_is_never_seen_with_a_part_of_its_files(config, template):
    workspaces = Workspaces(config(template=template))
    await workspaces.prepare(HERE)
    folder = workspaces.folder(HERE)
    for number in range(2000):
        (folder / f"{number}.md").touch()
    with os.scandir(folder) as entries:
        first = folder / next(entries).name
    deleting = asyncio.create_task(workspaces.remove(HERE))
    while not deleting.done():
        await asyncio.sleep(0)
        assert first.exists() or not folder.exists()
    assert list(folder.parent.iterdir()) == []


async def test_the_copy_of_the_template_counts_towards_the_quota_in_the_file(tmp_path, start, template, model):
    (template / "large.bin").write_bytes(b"x" * (MB - 100))
    path = tmp_path / "agents.yaml"
    path.write_text("workspace: {root: files, template: template, quota_mb: 1}")
    model.reply(tool_call("write_file", {"path": "a.md", "content": "x" * 200}))
    async with start(load_config(path).workspace) as sessions:
        assert await sessions.execute("alpha", HERE, "write") == "fine"
        assert "may hold 1.0 MB, it holds 1.0 MB" in results_in(model)[0]
        model.reply(tool_call("write_file", {"path": "large.bin", "content": ""}))
        model.reply(tool_call("write_file", {"path": "a.md", "content": "x" * 200}))
        await sessions.execute("alpha", HERE, "make room")
    assert "Wrote a.md" in results_in(model)[-1]


async def test_a_configured_root_of_the_file_tool_has_no_quota(tmp_path, config, start, model):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "large.bin").write_bytes(b"x" * 2 * MB)
    shared = ModuleConfig(module="tool-filesystem", config={"root": str(tmp_path / "shared")})
    model.reply(tool_call("write_file", {"path": "a.md", "content": "text"}))
    async with start(config(quota_mb=1), shared) as sessions:
        await sessions.execute("alpha", HERE, "write")
    assert "Wrote a.md" in results_in(model)[0]


async def test_a_full_disk_fails_only_runs_that_need_a_new_folder(tmp_path, config, start, template, model):
    limited = config(template=template)
    await Workspaces(limited).prepare(THERE)
    async with start(limited.model_copy(update={"reserve_mb": 10**9})) as sessions:
        with pytest.raises(RunFailed, match="The disk is full, so I cannot store the files of this conversation"):
            await sessions.execute("alpha", HERE, "hello")
        model.reply(tool_call("write_file", {"path": "a.md", "content": "text"}))
        assert await sessions.execute("alpha", THERE, "hello") == "fine"
    assert "Nothing was written: this needs 0.0 MB, the disk has" in results_in(model)[0]
    assert files_in(tmp_path / "files") == ["T-C-2.0", "T-C-2.0/plans", "T-C-2.0/plans/may.md"]


async def test_the_model_can_read_the_rest_of_a_large_result_in_its_file(tmp_path, config, start, model):
    (tmp_path / "big.py").write_text(BIG_TOOL)
    big = ModuleConfig(module="big", source=str(tmp_path / "big.py"))
    model.reply(tool_call("big"))

    def read_on(_body):
        results = results_in(model)
        if len(results) == 2:
            return message(text("fine"))
        path = results[0].rpartition("The whole result is in the file ")[2].partition(":")[0]
        return message(tool_call("read_file", {"path": path, "offset": 300_001, "limit": 2}))

    model.otherwise = read_on
    async with start(config(), big) as sessions:
        assert await sessions.execute("alpha", HERE, "look") == "fine"
    assert results_in(model)[1].startswith("line 300000\nline 300001\n[… The file continues.")


@pytest.mark.parametrize("inside", [".", "files", "far/below"])
async def test_a_root_inside_the_template_is_a_config_error(tmp_path, inside):
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path / inside, template=tmp_path))
    with pytest.raises(ConfigError, match="inside workspace"):
        await workspaces.check()


async def test_a_template_inside_the_root_is_copied(tmp_path, template):
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path, template=template))
    await workspaces.check()
    await workspaces.prepare(HERE)
    assert {path.name for path in tmp_path.iterdir()} == {"template", "T-C-1.0"}


async def test_a_root_that_is_not_writable_is_a_config_error(tmp_path, config):
    (tmp_path / "files").write_text("in the way")
    with pytest.raises(ConfigError, match="is not writable"):
        await Workspaces(config()).check()


async def test_a_folder_is_visible_only_when_it_is_complete(tmp_path, config, template):
    for number in range(40):
        (template / f"{number}.md").write_text("notes")
    workspaces = Workspaces(config(template=template))

    async def prepared():
        await workspaces.prepare(HERE)
        return len(list(workspaces.folder(HERE).iterdir()))

    assert await asyncio.gather(*(prepared() for _ in range(8))) == [41] * 8
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["T-C-1.0"]
