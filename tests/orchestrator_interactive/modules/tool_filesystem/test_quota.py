"""Limits of a workspace folder, and the files that the loop saves in it."""

import asyncio
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator, ToolResult
from orchestrator_interactive.modules import tool_filesystem

MB = 1_000_000
HALF = "x" * (MB // 2)


async def mounted(root: Path, **config: Any) -> ModuleCoordinator:
    coordinator = AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator
    await tool_filesystem.mount(coordinator, {"root": str(root), **config})
    return coordinator


async def write(coordinator: ModuleCoordinator, path: str, content: str, *, append: bool = False) -> ToolResult:
    tool = coordinator.get("tools", "write_file")
    result: ToolResult = await tool.execute({"path": path, "content": content, "append": append})
    return result


def refused(result: ToolResult) -> str:
    assert not result.success, result
    return str((result.error or {})["message"])


def files_in(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


def modes_in(root: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in (root, *files_in(root))}


async def test_the_error_of_a_write_over_the_quota_has_the_usage_and_a_remedy(tmp_path: Path) -> None:
    workspace = await mounted(tmp_path, quota_mb=1)
    assert (await write(workspace, "a.md", HALF)).success
    assert (await write(workspace, "b.md", "")).success
    assert (await write(workspace, "b.md", HALF, append=True)).success
    assert "may hold 1.0 MB" in refused(await write(workspace, "b.md", "!", append=True))
    assert (await write(workspace, "b.md", HALF)).success, "a replaced file counts once"
    error = refused(await write(workspace, "plans/c.md", "more"))
    assert "may hold 1.0 MB, it holds 1.0 MB" in error
    assert "empty ones" in error
    assert not (tmp_path / "plans").exists(), "a refused write leaves nothing"
    assert (await write(workspace, "a.md", "")).success
    assert (await write(workspace, "plans/c.md", "more")).success


async def test_concurrent_writes_of_several_sessions_keep_the_quota(tmp_path: Path) -> None:
    sessions = [await mounted(tmp_path, quota_mb=1) for _ in range(3)]
    writes = [write(sessions[number % 3], f"{number}.md", "x" * 100_000) for number in range(30)]
    results = await asyncio.gather(*writes)
    assert sum(result.success for result in results) == 10
    assert sum(path.stat().st_size for path in files_in(tmp_path)) == MB


async def test_concurrent_appends_of_two_sessions_lose_nothing(tmp_path: Path) -> None:
    sessions = [await mounted(tmp_path) for _ in range(2)]
    await asyncio.gather(*(write(sessions[n % 2], "a.md", f"{n}\n", append=True) for n in range(40)))
    assert sorted(map(int, (tmp_path / "a.md").read_text().split())) == list(range(40))


async def test_the_number_of_files_and_folders_is_limited(tmp_path: Path) -> None:
    workspace = await mounted(tmp_path, quota_files=3)
    assert (await write(workspace, "a/b/c.md", "")).success
    assert "may hold 3 files and folders" in refused(await write(workspace, "d.md", ""))
    assert (await write(workspace, "a/b/c.md", "still", append=True)).success


async def test_files_of_other_programs_count_until_they_are_removed(tmp_path: Path) -> None:
    (tmp_path / "by-a-template.bin").write_bytes(b"x" * MB)
    workspace = await mounted(tmp_path, quota_mb=1)
    assert "may hold" in refused(await write(workspace, "a.md", "more"))
    (tmp_path / "by-a-template.bin").unlink()
    assert (await write(workspace, "a.md", "more")).success


async def test_old_drafts_of_interrupted_writes_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".draft-aaaaaaaaaaaaaaaa").mkdir()
    os.utime(tmp_path / ".draft-aaaaaaaaaaaaaaaa", (0, 0))
    old, new, own = (tmp_path / f".draft-{name}" for name in ("0123456789abcdef", "fedcba9876543210", "plan"))
    for path in (old, new, own):
        path.write_bytes(b"x")
    for path in (old, own):
        os.utime(path, (0, 0))
    workspace = await mounted(tmp_path, quota_files=4)
    assert (await write(workspace, "a.md", "text")).success
    assert files_in(tmp_path) == sorted([tmp_path / ".draft-aaaaaaaaaaaaaaaa", new, own, tmp_path / "a.md"])
    assert "may hold 4 files" in refused(await write(workspace, "b.md", "text"))


async def test_a_write_keeps_the_reserve_of_the_disk_free(tmp_path: Path) -> None:
    workspace = await mounted(tmp_path, reserve_mb=10**9)
    error = refused(await write(workspace, "a.md", "text"))
    assert "the service keeps 1,000,000,000.0 MB free" in error
    assert files_in(tmp_path) == []


async def test_a_write_that_the_system_refuses_leaves_no_file(tmp_path: Path) -> None:
    workspace = await mounted(tmp_path, quota_mb=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        assert "cannot be used" in refused(await write(workspace, "a.md", HALF))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files_in(tmp_path) == []
    assert (await write(workspace, "a.md", HALF)).success


async def test_only_the_owner_may_read_new_files_and_folders(tmp_path: Path) -> None:
    workspace = await mounted(tmp_path / "new")
    await write(workspace, "plans/a.md", "text")
    assert modes_in(tmp_path / "new") == {"new": 0o700, "plans": 0o700, "a.md": 0o600}


async def test_a_saved_text_of_one_long_line_can_be_read_in_parts(tmp_path: Path) -> None:
    workspace = await mounted(tmp_path)
    text = "".join(f"{number:09}," for number in range(30_000))
    path = await workspace.get_capability("workspace.save")("../call\n1/" + "é" * 300, text)
    assert os.path.dirname(path) == "results"  # noqa: PTH120 - a path of the tools
    (_, saved) = files_in(tmp_path)
    assert saved.read_text().replace("\n", "") == text
    read = workspace.get("tools", "read_file")
    first, last = [(await read.execute({"path": path, "offset": offset})).output for offset in (1, 30)]
    assert "Read on with offset=20" in first
    assert "000029999," in last


@pytest.mark.parametrize("text", ["", "a\n" * 9_999 + "b", "x" * 10_000 + "\n" + "y" * 10_000, "\n" * 30_000])
async def test_a_saved_text_of_short_lines_is_unchanged(tmp_path: Path, text: str) -> None:
    workspace = await mounted(tmp_path)
    path = await workspace.get_capability("workspace.save")("call", text)
    assert (tmp_path / path).read_text() == text


async def test_a_text_over_the_quota_is_not_saved(tmp_path: Path) -> None:
    workspace = await mounted(tmp_path, quota_mb=1)
    with pytest.raises(ValueError, match="may hold"):
        await workspace.get_capability("workspace.save")("call", HALF * 3)


@pytest.mark.parametrize("denied", [[], ["."]])
async def test_a_text_is_saved_and_can_be_read_whatever_paths_the_model_may_use(tmp_path: Path, denied: Any) -> None:
    allowed = {"allowed_read_paths": ["docs"], "allowed_write_paths": ["docs"], "denied_write_paths": denied}
    workspace = await mounted(tmp_path, **allowed)
    path = await workspace.get_capability("workspace.save")("call", "text\n")
    (tmp_path / "results" / "private.txt").write_text("text\n")
    read, search = workspace.get("tools", "read_file"), workspace.get("tools", "search_files")
    assert (await read.execute({"path": path})).output == "text\n"
    assert (await search.execute({"path": path, "query": "t"})).output == f"{path}:1: text"
    assert not (await read.execute({"path": "results/private.txt"})).success
    assert not (await search.execute({"path": "results", "query": "t"})).success
    assert not (await write(workspace, path, "changed")).success
