"""The tools that edit, move and delete files, the parameter `file_path`, and protected paths."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents.milestones import soon

from orchestrator_interactive.kernel import AmplifierSession, ToolResult
from orchestrator_interactive.modules import tool_filesystem
from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceError, WorkspaceFolder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "workspace" / "plans").mkdir(parents=True)
    (tmp_path / "workspace" / "notes.md").write_text("bake a cake, eat a cake\n")
    (tmp_path / "workspace" / "plans" / "may.md").write_text("# May\n")
    return tmp_path / "workspace"


async def tools_in(root: Path, **config: Any) -> Any:
    """Mount the tools; return a function that calls one and returns its output or its error."""
    coordinator = AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator
    await tool_filesystem.mount(coordinator, {"working_dir": str(root), **config})

    async def run(name: str, **given: Any) -> tuple[bool, str]:
        result: ToolResult = await coordinator.get("tools", name).execute(given)
        return result.success, str(result.output if result.success else (result.error or {})["message"])

    return run


async def test_amplifiers_parameter_file_path_is_accepted_beside_path(root: Path) -> None:
    run = await tools_in(root)
    assert (await run("write_file", file_path=str(root / "new.md"), content="a\nb\n"))[0]
    assert await run("read_file", file_path="new.md", offset=2, limit=5) == (True, "b\n")
    both = await run("read_file", path="new.md", file_path="notes.md")
    assert both == (False, "read_file: 'path' and 'file_path' are names of the same option; give only one.")


async def test_an_edit_replaces_one_text_or_every_occurrence(root: Path) -> None:
    run = await tools_in(root)
    edit = {"file_path": "notes.md", "new_string": "tört"}
    _, said = await run("edit_file", old_string="bake a cake", **edit)
    assert said.startswith("Replaced 1 occurrence in notes.md; it has 18 bytes now.")
    (root / "notes.md").write_text("a, b, a\n")
    assert (await run("edit_file", old_string="a", replace_all=True, **edit))[1].startswith("Replaced 2 occurrences")
    assert (root / "notes.md").read_text() == "tört, b, tört\n"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"old_string": "a cake"}, "contains old_string 2 times. Give more of the text around it, or set replace_all"),
        ({"old_string": "pie"}, "does not contain old_string"),
        ({"old_string": "tea"}, "old_string and new_string are the same"),
        ({"old_string": ""}, "'old_string'"),
        ({"old_string": "x", "path": "absent.md"}, "There is no 'absent.md'"),
        ({"old_string": "x", "path": "../notes.md"}, "is not in the workspace"),
    ],
)
async def test_an_edit_that_is_not_clear_changes_nothing(root: Path, given: dict[str, str], sentence: str) -> None:
    before = (root / "notes.md").read_text()
    success, message = await (await tools_in(root))("edit_file", **{"path": "notes.md", "new_string": "tea", **given})
    assert not success
    assert sentence in message
    assert (root / "notes.md").read_text() == before


async def test_an_edit_does_not_undo_a_write_that_came_between_its_steps(root: Path) -> None:
    folder = WorkspaceFolder(root)
    folder.write("notes.md", b"new", max_bytes=100)
    with pytest.raises(WorkspaceError, match=r"was changed in the meantime\. Read it again"):
        folder.write("notes.md", b"edited", replaced=b"old", max_bytes=100)
    assert (root / "notes.md").read_text() == "new"


class TestAllowedPaths:
    async def test_writing_is_confined_to_the_allowed_paths_and_denied_ones_rank_first(self, root: Path) -> None:
        run = await tools_in(root, allowed_write_paths=["plans", "todo.md"], denied_write_paths=["plans/final"])
        assert (await run("write_file", path="plans/deep/june.md", content="x"))[0]
        assert (await run("write_file", path="todo.md", content="x"))[0]
        assert (await run("write_file", path="plans-b.md", content="x")) == (
            False,
            "You may not write 'plans-b.md'. You may write in: plans, todo.md.",
        )
        refused = await run("edit_file", path="notes.md", old_string="bake", new_string="x")
        assert refused == (False, "You may not write 'notes.md'. You may write in: plans, todo.md.")
        assert "must not be changed" in (await run("write_file", path="plans/final/a.md", content="x"))[1]
        assert not (root / "plans" / "final").exists()

    async def test_a_link_does_not_lead_out_of_the_allowed_paths(self, root: Path) -> None:
        (root / "plans" / "link").symlink_to(root)
        run = await tools_in(root, allowed_write_paths=["plans"], allowed_read_paths=["plans"])
        assert "You may not write" in (await run("write_file", path="plans/link/notes.md", content="x"))[1]
        assert "You may not read" in (await run("read_file", path="plans/link/notes.md"))[1]

    async def test_reading_listing_and_searching_are_confined_to_the_allowed_paths(self, root: Path) -> None:
        run = await tools_in(root, allowed_read_paths=["plans"])
        assert await run("list_files", path="plans") == (True, "plans/may.md (6 bytes)")
        assert await run("search_files", query="May", path="plans") == (True, "plans/may.md:1: # May")
        sentence = "You may not read '{}'. You may read in: plans."
        assert await run("list_files", path="drafts") == (False, sentence.format("drafts"))
        assert await run("search_files", query="cake", path="notes.md") == (False, sentence.format("notes.md"))
        assert await run("read_file", path="notes.md") == (False, sentence.format("notes.md"))

    async def test_a_folder_around_allowed_paths_is_listed_and_searched_in_these_only(self, root: Path) -> None:
        (root / "plans" / ".hidden").mkdir()
        (root / "plans" / ".hidden" / "june.md").write_text("May\n")
        allowed = ["plans/.hidden", "plans/.hidden/june.md", "notes.md", "absent"]
        run = await tools_in(root, allowed_read_paths=allowed)
        hidden = "plans/.hidden/june.md (4 bytes)"
        assert await run("list_files") == (True, f"{hidden}\nnotes.md (24 bytes)")
        assert await run("list_files", path="plans") == (True, hidden)
        assert await run("search_files", query="a") == (
            True,
            "plans/.hidden/june.md:1: May\nnotes.md:1: bake a cake, eat a cake",
        )

    async def test_an_allowed_path_in_the_home_of_nobody_is_an_error_that_names_the_option(self, root: Path) -> None:
        with pytest.raises(ValueError, match=r"tool-filesystem: 'denied_write_paths\.0': ~nouser is not a home folder"):
            await tools_in(root, denied_write_paths=["~nouser/x"])

    async def test_a_path_outside_of_the_workspace_gives_no_access_and_is_logged(self, root: Path, logs) -> None:
        outside = root.parent / "outside"
        run = await tools_in(root, allowed_write_paths=[str(root.parent), str(outside)])
        assert (await run("write_file", path="a.md", content="x"))[0]  # the root is inside the first path
        assert "is not in the workspace" in (await run("write_file", path=str(outside / "a.md"), content="x"))[1]
        (warned,) = logs.named("tool_filesystem.paths_outside_workspace")
        assert warned["paths"] == [str(outside)]


@pytest.fixture
def linked(root: Path, tmp_path: Path) -> Path:
    """The workspace, with a link to a folder outside."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.md").write_text("outside")
    (root / "link").symlink_to(tmp_path / "secret")
    return root


def tree(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if not each.is_dir() or each.is_symlink())


async def test_files_and_folders_are_moved_and_deleted(linked: Path) -> None:
    run = await tools_in(linked)
    assert await run("move_file", path="notes.md", to="old/2026/notes.md") == (
        True,
        "Moved notes.md to old/2026/notes.md.",
    )
    assert (await run("move_file", path="plans", to="old/plans"))[0]
    assert tree(linked) == ["link", "old/2026/notes.md", "old/plans/may.md"]
    assert await run("delete_file", path="old/2026/notes.md") == (True, "Deleted old/2026/notes.md.")
    assert (await run("delete_file", path="old/2026"))[0]
    refused = (False, "The folder 'old' is not empty. Set recursive=true to delete all of it.")
    assert await run("delete_file", path="old") == refused
    assert (await run("delete_file", path="old", recursive=True))[0]
    assert tree(linked) == ["link"]


async def test_a_link_is_moved_and_deleted_and_never_its_target(linked: Path, tmp_path: Path) -> None:
    run = await tools_in(linked)
    assert (await run("move_file", path="link", to="plans/link"))[0]
    assert (await run("delete_file", path="plans", recursive=True))[0]
    assert (tmp_path / "secret" / "key.md").read_text() == "outside"
    assert tree(linked) == ["notes.md"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("delete_file", {"path": "link/key.md"}),
        ("delete_file", {"path": "../secret/key.md"}),
        ("delete_file", {"path": "plans/../../secret", "recursive": True}),
        ("delete_file", {"path": "/etc/hostname"}),
        ("delete_file", {"path": "a\0b"}),
        ("delete_file", {"path": ".", "recursive": True}),
        ("delete_file", {"path": "", "recursive": True}),
        ("delete_file", {"path": "gone.md"}),
        ("delete_file", {"path": "notes.md/x"}),
        ("move_file", {"path": "../secret/key.md", "to": "key.md"}),
        ("move_file", {"path": "link/key.md", "to": "key.md"}),
        ("move_file", {"path": "notes.md", "to": "../notes.md"}),
        ("move_file", {"path": "notes.md", "to": "link/notes.md"}),
        ("move_file", {"path": "notes.md", "to": "/etc/notes.md"}),
        ("move_file", {"path": "notes.md", "to": "plans/may.md"}),
        ("move_file", {"path": "notes.md", "to": "link"}),
        ("move_file", {"path": "notes.md", "to": "."}),
        ("move_file", {"path": "plans", "to": "plans/old/plans"}),
        ("move_file", {"path": "gone.md", "to": "back.md"}),
        ("move_file", {"path": "notes.md", "to": "n" * 300}),
    ],
)
async def test_nothing_outside_is_moved_or_deleted_and_nothing_inside_is_lost(
    linked: Path, tmp_path: Path, name: str, given: dict[str, Any]
) -> None:
    run, before = await tools_in(linked), tree(tmp_path)
    succeeded, said = await run(name, **given)
    assert not succeeded
    assert said.endswith(".")
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("config", "protected"),
    [
        ({"denied_write_paths": ["plans/may.md"]}, "plans"),
        ({"denied_write_paths": ["plans"]}, "plans/may.md"),
        ({"allowed_write_paths": ["plans"]}, "notes.md"),
    ],
)
async def test_protected_files_stay(linked: Path, config: dict[str, Any], protected: str) -> None:
    run, before = await tools_in(linked, **config), tree(linked)
    assert not (await run("delete_file", path=protected, recursive=True))[0]
    assert not (await run("move_file", path=protected, to="moved"))[0]
    assert tree(linked) == before


@pytest.mark.parametrize("to", ["public/notes.md", "results/a-00000000.txt"])
async def test_a_move_makes_nothing_readable(root: Path, to: str) -> None:
    (root / "drafts").mkdir()
    (root / "drafts" / "plan.md").write_text("secret")
    run, before = await tools_in(root, allowed_read_paths=["public", "drafts/public"]), tree(root)
    for path in ("notes.md", "drafts", "drafts/plan.md"):
        assert not (await run("move_file", path=path, to=to))[0]
    assert tree(root) == before


async def test_a_folder_is_not_moved_to_where_it_would_hold_a_protected_path(root: Path) -> None:
    run = await tools_in(root, denied_write_paths=[".github/workflows/ci.yml"])
    assert (await run("write_file", path="x/workflows/ci.yml", content="mine"))[0]
    succeeded, said = await run("move_file", path="x", to=".github")
    assert not succeeded
    assert "must not be changed" in said
    assert (await run("move_file", path="x", to=".github/other"))[0]


async def test_an_edit_returns_its_diff(linked: Path) -> None:
    run = await tools_in(linked)
    _, said = await run("edit_file", path="notes.md", old_string="eat a cake", new_string="sell it")
    assert "-bake a cake, eat a cake\n+bake a cake, sell it" in said


async def test_the_preview_of_a_large_change_is_made_in_bounded_time_and_in_a_thread(root: Path) -> None:
    edit, beats = await preview_of(root, "edit_file"), 0
    (root / "large.csv").write_text("".join(f"{n},{'open' if n % 2 else 'done'}\n" for n in range(30_000)))

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(beat())
    shown = await soon(edit({"path": "large.csv", "old_string": "open", "new_string": "closed", "replace_all": True}))
    beating.cancel()
    assert beats > 3
    changed = [line for line in shown.splitlines() if line[0] in "+-"][2:]
    assert changed == [line for n in range(1, 30_000, 2) for line in (f"-{n},open", f"+{n},closed")]
    assert "\n@@ -1,30000 +1,30000 @@\n 0,done\n-1,open\n+1,closed\n 2,done\n" in shown


async def test_a_preview_numbers_the_lines_of_each_hunk(root: Path) -> None:
    write = await preview_of(root, "write_file")
    (root / "notes.md").write_text("".join(f"{n}\n" for n in range(1, 21)))
    shown = await write({"path": "notes.md", "content": "".join(f"{n}\n" for n in (0, *range(1, 17), 18, 19, 20))})
    assert "@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3\n@@ -14,7 +15,6 @@\n 14\n 15\n 16\n-17\n 18" in shown
    assert "--- (no file yet)\n+++ new.md\n@@ -0,0 +1 @@\n+a\n" in await write({"path": "new.md", "content": "a\n"})


async def preview_of(root: Path, name: str) -> Any:
    coordinator = AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator
    await tool_filesystem.mount(coordinator, {"working_dir": str(root)})
    return coordinator.get("tools", name).preview
