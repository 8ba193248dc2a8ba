"""Read-only folders outside of the workspace, files with several names, and binary files."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator_interactive.kernel import ModuleCoordinator
from orchestrator_interactive.modules import tool_filesystem

Call = Callable[..., Awaitable[str]]


@pytest.fixture
async def call(coordinator: ModuleCoordinator, tmp_path: Path) -> Call:
    root, handbook = tmp_path / "root", tmp_path / "handbook"
    (handbook / "deep").mkdir(parents=True)
    (handbook / "rules.md").write_text("Be kind.\n")
    (handbook / "deep" / "more.md").write_text("Be kind again.\n")
    (handbook / "up").symlink_to(tmp_path)
    (tmp_path / "secret.md").write_text("kind of secret\n")
    root.mkdir()
    (root / "mine.md").write_text("mine\n")
    (root / "photo.png").write_bytes(b"\x89PNG\0")
    os.link(tmp_path / "secret.md", root / "linked.md")
    await tool_filesystem.mount(coordinator, {"root": str(root), "mounts": {"handbook": str(handbook)}})

    async def run(name: str, **given: Any) -> str:
        result = await coordinator.get("tools", name).execute(given)
        return str(result.output if result.success else result.error["message"])

    return run


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("read_file", {"path": "handbook/rules.md"}, "Be kind.\n"),
        ("read_file", {"path": "./handbook/deep/more.md"}, "Be kind again.\n"),
        ("list_files", {}, "handbook/ (a read-only folder; list it by its path)"),
        ("list_files", {"path": "handbook"}, "handbook/deep/more.md (15 bytes)"),
        ("search_files", {"query": "kind", "path": "handbook"}, "handbook/rules.md:1: Be kind."),
        ("search_files", {"query": "kind", "path": "handbook/deep"}, "handbook/deep/more.md:1: Be kind again."),
        ("write_file", {"path": "handbook/new.md", "content": "x"}, "read-only"),
        ("edit_file", {"path": "handbook/rules.md", "old_string": "kind", "new_string": "x"}, "read-only"),
        ("move_file", {"path": "handbook/rules.md", "to": "mine2.md"}, "read-only"),
        ("move_file", {"path": "mine.md", "to": "handbook/mine.md"}, "read-only"),
        ("delete_file", {"path": "handbook/rules.md"}, "read-only"),
        ("delete_file", {"path": "handbook", "recursive": True}, "read-only"),
        ("read_file", {"path": "handbook/up/secret.md"}, "is not in the workspace"),
        ("read_file", {"path": "handbook/../secret.md"}, "is not in the workspace"),
        ("read_file", {"path": "handbook"}, "Give the path of a file"),
        ("read_file", {"path": "linked.md"}, "has several names (hard links)"),
        ("read_file", {"path": "photo.png"}, "is a binary file (image/png, 5 bytes)"),
    ],
)
async def test_mounts_are_read_and_never_changed(call: Call, tool: str, given: dict[str, Any], expected: str) -> None:
    assert expected in await call(tool, **given)
    assert await call("read_file", path="handbook/rules.md") == "Be kind.\n"


async def test_a_search_reads_no_file_with_another_name(call: Call) -> None:
    assert await call("search_files", query="secret") == "No line contains “secret”."


@pytest.mark.parametrize(
    ("mounts", "problem"),
    [({"a/b": "/"}, "one word"), ({"..": "/"}, "one word"), ({"a": "/nowhere"}, "exists"), ({"a": "docs"}, "absolute")],
)
async def test_a_mount_that_is_not_possible_is_refused(
    coordinator: ModuleCoordinator, tmp_path: Path, mounts: dict[str, str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        await tool_filesystem.mount(coordinator, {"root": str(tmp_path), "mounts": mounts})
