"""The tools list_files, read_file, search_files and write_file."""

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from child_processes import child_processes

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator, ToolResult, reporting
from orchestrator_interactive.kernel.contracts.protocols import Tool
from orchestrator_interactive.modules import tool_filesystem
from orchestrator_interactive.modules.tool_filesystem.search import scan
from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceFolder

Run = Callable[..., Any]


def a_coordinator() -> ModuleCoordinator:
    return AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator


async def tools_in(root: Path, **config: Any) -> dict[str, Any]:
    coordinator = a_coordinator()
    await tool_filesystem.mount(coordinator, {"root": str(root), **config})
    return dict(coordinator.get("tools"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.md").write_text("outside")
    return tmp_path / "workspace"


@pytest.fixture
async def tools(root: Path) -> dict[str, Any]:
    return await tools_in(root)


@pytest.fixture
def run(tools: dict[str, Any]) -> Run:
    async def run(name: str, **given: Any) -> ToolResult:
        result: ToolResult = await tools[name].execute(given)
        return result

    return run


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def said(result: ToolResult) -> str:
    assert result.success, result
    return str(result.output)


def refused(result: ToolResult) -> str:
    assert not result.success, result
    return str((result.error or {})["message"])


def search_processes() -> list[str]:
    found = []
    for pid in child_processes():
        with suppress(OSError):  # it has ended
            if b"search_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


async def test_it_mounts_its_tools_and_creates_the_folder(root: Path) -> None:
    tools = await tools_in(root)
    changing = {"write_file", "edit_file", "move_file", "delete_file"}
    assert set(tools) == {"list_files", "read_file", "search_files", *changing}
    assert names_in(root) == []
    for name, tool in tools.items():
        assert isinstance(tool, Tool)
        assert tool.name == name
        assert tool.input_schema == tool.get_schema()
        assert tool.input_schema["type"] == "object"
        assert tool.side_effect_free is (name not in changing)


@pytest.mark.parametrize("is_set", [True, False])
async def test_the_default_root_is_the_folder_of_the_session_or_the_process(root, monkeypatch, *, is_set: bool) -> None:
    await asyncio.to_thread(root.mkdir)
    coordinator = a_coordinator()
    if is_set:
        coordinator.register_capability("session.working_dir", str(root))
    else:
        monkeypatch.chdir(root)
    await tool_filesystem.mount(coordinator, {})
    said(await coordinator.get("tools", "write_file").execute({"path": "here.md", "content": "x"}))
    assert names_in(root) == ["here.md"]


async def test_the_error_names_an_unknown_option(root: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"there is no 'maxresults'; did you mean 'max_results'. There are: root, .*max_read_bytes, max_results",
    ):
        await tools_in(root, maxresults=3)


async def test_a_written_file_can_be_listed_read_and_searched(run: Run, root: Path) -> None:
    said(await run("write_file", path="plans/may.md", content="# May\nbake a cake\n"))
    said(await run("write_file", path=str(root / "notes.md"), content="Cake is good.\n"))
    assert said(await run("list_files")) == "notes.md (14 bytes)\nplans/may.md (18 bytes)"
    assert said(await run("read_file", path="plans/may.md")) == "# May\nbake a cake\n"
    assert said(await run("search_files", query="cake")) == "notes.md:1: Cake is good.\nplans/may.md:2: bake a cake"


@pytest.mark.parametrize("path", ["../secret.md", "a/../../secret.md", "/etc/hostname", "a/..", "a\0b", "\ud800"])
@pytest.mark.parametrize("name", ["list_files", "read_file", "search_files", "write_file", "move_file", "delete_file"])
async def test_a_path_outside_is_refused_by_every_tool(run: Run, name: str, path: str) -> None:
    extra = {"write_file": {"content": "x"}, "search_files": {"query": "x"}, "move_file": {"to": "x"}}.get(name, {})
    assert refused(await run(name, path=path, **extra))


async def test_links_to_outside_are_refused(run: Run, root: Path, tmp_path: Path) -> None:
    (root / "file").symlink_to(tmp_path / "secret.md")
    (root / "folder").symlink_to(tmp_path)
    (root / "circle").symlink_to(root / "circle")
    for path in ("file", "folder/secret.md", "circle"):
        assert refused(await run("read_file", path=path))
        assert refused(await run("write_file", path=path, content="x"))
    assert refused(await run("write_file", path="folder/new.md", content="x"))
    assert said(await run("list_files")) == "There are no such files."
    assert said(await run("search_files", query="outside")) == "No line contains “outside”."
    assert (tmp_path / "secret.md").read_text() == "outside"
    assert names_in(tmp_path) == ["secret.md", "workspace"]


async def test_a_link_inside_the_workspace_is_followed(run: Run, root: Path) -> None:
    (root / "real.md").write_text("one\n")
    (root / "link.md").symlink_to("real.md")
    said(await run("write_file", path="link.md", content="two\n", append=True))
    assert said(await run("read_file", path="link.md")) == "one\ntwo\n"
    assert (root / "link.md").is_symlink()


async def test_pipes_sockets_and_folders_are_refused_at_once(run: Run, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "sock"))
        for path in ("pipe", "sock", "folder", "."):
            assert refused(await run("read_file", path=path))
            assert refused(await run("write_file", path=path, content="x"))
    assert said(await run("search_files", query="x")) == "No line contains “x”."


async def test_the_error_of_a_missing_file_has_a_remedy(run: Run, root: Path) -> None:
    (root / "notes.md").write_text("x")
    assert "Use list_files" in refused(await run("read_file", path="nothing.md"))
    assert "Use list_files" in refused(await run("list_files", path="nowhere"))
    assert "not a folder" in refused(await run("read_file", path="notes.md/part"))


@pytest.mark.parametrize(
    "path",
    [
        "d/" * 1000 + "f.md",
        "d/" * 21 + "f.md",
        f"{'n' * 250}/" * 4 + "f.md",
        "d/" * 9000,
        "n" * 256,
        "é" * 128,
        "x" * 10**6,
    ],
)
async def test_every_tool_refuses_a_path_that_is_too_long(run: Run, root: Path, path: str) -> None:
    for name, more in (("write_file", {"content": "x"}), ("read_file", {}), ("search_files", {"query": "x"})):
        assert "255 bytes a name" in refused(await run(name, path=path, **more))
    assert "255 bytes a name" in refused(await run("list_files", path=path))
    assert names_in(root) == []


async def test_a_path_of_maximum_length_works_with_every_tool(run: Run) -> None:
    path = "d/" * 20 + "f.md"
    said(await run("write_file", path=path, content="deep"))
    assert said(await run("list_files")) == f"{path} (4 bytes)"
    assert said(await run("search_files", query="deep")) == f"{path}:1: deep"
    assert said(await run("read_file", path=path)) == "deep"


async def test_files_that_are_too_deep_are_omitted_with_a_note(run: Run, root: Path) -> None:
    (root / "a.md").write_text("cake")
    folder = os.open(root, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    for name, given, found in (
        ("list_files", {}, "a.md (4 bytes)"),
        ("search_files", {"query": "cake"}, "a.md:1: cake"),
    ):
        first, note = said(await run(name, **given)).split("\n")
        assert first == found
        assert "1 files or folders are left out" in note
    assert said(await run("search_files", query="bread")).startswith("No line contains “bread”.\n[… 1 files")
    # Python's own removal of a tree is recursive.
    await asyncio.to_thread(subprocess.run, ["rm", "-rf", root / "d"], check=True)


async def test_list_files_omits_hidden_files_and_takes_a_folder_or_a_pattern(run: Run, root: Path) -> None:
    for path in (".git/config", ".env", "node_modules/x.js", "a.md", "b.txt", "sub/c.md"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("x")
    assert said(await run("list_files")).split("\n") == ["a.md (1 bytes)", "b.txt (1 bytes)", "sub/c.md (1 bytes)"]
    assert said(await run("list_files", path="sub")) == "sub/c.md (1 bytes)"
    assert said(await run("list_files", path="a.md")) == "a.md (1 bytes)"
    for pattern in ("*.md", "**/*.md"):
        assert said(await run("list_files", pattern=pattern)) == "a.md (1 bytes)\nsub/c.md (1 bytes)"


async def test_long_results_are_truncated_with_a_note(root: Path) -> None:
    tools = await tools_in(root, max_results=2)
    for name in "abc":
        (root / f"{name}.md").write_text("same\n")
    for name, given in (("list_files", {}), ("search_files", {"query": "same"})):
        lines = said(await tools[name].execute(given)).split("\n")
        assert len(lines) == 3
        assert "only the first 2 are shown" in lines[2]


async def test_a_partial_read_names_the_next_offset(run: Run, root: Path) -> None:
    (root / "ten.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    assert said(await run("read_file", path="ten.txt", offset=9)) == "line 9\nline 10\n"
    part = said(await run("read_file", path="ten.txt", offset=2, limit=2))
    assert part == "line 2\nline 3\n[… The file continues. Read on with offset=4.]"
    assert said(await run("read_file", path="ten.txt", offset=9, limit=2)) == "line 9\nline 10\n"
    assert "only 10 lines" in refused(await run("read_file", path="ten.txt", offset=12))


async def test_a_large_file_is_read_in_parts_of_whole_lines(root: Path) -> None:
    tools = await tools_in(root, max_read_bytes=50)
    whole = "".join(f"line ä {n}\n" for n in range(30))
    (root / "large.txt").write_text(whole)
    read, offset = "", 1
    while True:
        text = said(await tools["read_file"].execute({"path": "large.txt", "offset": offset}))
        part, cut, note = text.partition("[… Truncated")
        read += part
        if not cut:
            break
        offset = int(note.rpartition("=")[2].removesuffix(".]"))
    assert read == whole


async def test_a_long_line_is_truncated_between_characters(root: Path) -> None:
    tools = await tools_in(root, max_read_bytes=11)
    (root / "line.txt").write_text("ä" * 50 + "\nnext\n")
    text = said(await tools["read_file"].execute({"path": "line.txt"}))
    assert text == "äääää\n[… Line 1 is truncated after 11 bytes. Read on with offset=2.]"


async def test_invalid_bytes_are_replaced_and_binary_files_refused(run: Run, root: Path) -> None:
    (root / "odd.txt").write_bytes(b"caf\xe9\n")
    (root / "empty.txt").touch()
    (root / "picture.png").write_bytes(b"\x89PNG\0\0")
    assert said(await run("read_file", path="odd.txt")) == "caf�\n"
    assert said(await run("read_file", path="empty.txt")) == "(The file is empty.)"
    assert "binary file" in refused(await run("read_file", path="picture.png"))
    assert said(await run("search_files", query="PNG")) == "No line contains “PNG”."


async def test_a_request_that_exceeds_the_socket_buffer_is_sent_whole(root: Path) -> None:
    workspace = WorkspaceFolder(root)
    (root / "a.md").write_text("x" * 100)
    found = await scan(workspace, ".", pattern="*.md", query="y" * 1_000_000, regex=False, ignore_case=False, limit=9)
    assert (found["items"], found["is_late"]) == ([], False)


async def test_a_search_says_that_it_leaves_out_large_files(run: Run, root: Path) -> None:
    for name in ("a.log", "b.log"):
        (root / name).write_text("needle\n" + "x" * 2_000_000)
    (root / "c.md").write_text("needle")
    note = "[… Files larger than 2 MB were not searched: {}. Look into them with read_file.]"
    assert said(await run("search_files", query="needle")) == f"c.md:1: needle\n{note.format(2)}"
    assert said(await run("search_files", query="needle", path="a.log")).endswith(f"\n{note.format(1)}")
    assert "2 MB" not in said(await run("list_files"))


async def test_a_search_says_that_it_ends_at_the_size_limit(run: Run, root: Path) -> None:
    for number in range(11):
        (root / f"{number:02}.txt").write_text("x" * 2_000_000)
    (root / "last.txt").write_text("needle")
    note = "[… Only the first 20 million characters were searched. Narrow the search to a folder.]"
    assert said(await run("search_files", query="needle")) == f"No line contains “needle”.\n{note}"


async def test_a_search_ignores_case_unless_told_otherwise(run: Run, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "a.md").write_text("Straße\nSTRASSE\n")
    (root / "sub" / "b.md").write_text("straße\n")
    assert said(await run("search_files", query="strasse")).count("\n") == 2
    assert said(await run("search_files", query="straße", case_sensitive=True)) == "sub/b.md:1: straße"
    assert said(await run("search_files", query="straße", path="sub")) == "sub/b.md:1: straße"
    assert said(await run("search_files", query="STRASSE", path="a.md", case_sensitive=True)) == "a.md:2: STRASSE"


async def test_a_regular_expression_matches_lines_split_at_newlines_only(run: Run, root: Path) -> None:
    (root / "a.md").write_text("one\rtwo\x0cthree\u2028four\nMay 12\r\nmay 3\n")
    assert said(await run("search_files", query=r"^may \d+$", regex=True)) == "a.md:2: May 12\na.md:3: may 3"
    assert said(await run("search_files", query=r"^may", regex=True, case_sensitive=True)) == "a.md:3: may 3"
    assert said(await run("search_files", query="May 12")) == "a.md:2: May 12"


async def test_a_catastrophic_expression_is_stopped_without_blocking_others(run: Run, root: Path) -> None:
    (root / "trap.txt").write_text("a" * 1_000 + "!")
    search = asyncio.create_task(run("search_files", query="(a+)+$", regex=True))
    (root / "notes.md").write_text("still here")
    assert said(await run("read_file", path="notes.md")) == "still here"
    assert not search.done()
    assert "takes too long" in refused(await search)


async def processes_at_rest() -> set[str]:
    while any(thread.name == "search" for thread in threading.enumerate()):  # noqa: ASYNC110 - as below
        await asyncio.sleep(0.001)
    return child_processes()


async def new_process(before: set[str]) -> str:
    while not (new := child_processes() - before):  # noqa: ASYNC110 - a new process sends no event
        await asyncio.sleep(0.001)
    return new.pop()


@pytest.mark.parametrize("kills", [1, 2])
async def test_a_search_whose_process_ends_is_repeated_once(run: Run, root: Path, kills: int) -> None:
    (root / "trap.txt").write_text("a" * 1_000 + "!")
    before = await processes_at_rest()
    search = asyncio.create_task(run("search_files", query="(a+)+$", regex=True))
    for _ in range(kills):
        process = await new_process(before)
        before.add(process)
        if kills == 1:
            (root / "trap.txt").write_text("aaa")
        os.kill(int(process), signal.SIGKILL)
    if kills == 1:
        assert said(await search) == "trap.txt:1: aaa"
    else:
        error = refused(await search)
        assert error.startswith("The files cannot be read now:")
        assert error.endswith("Try again later.")


async def test_a_cancelled_search_ends_its_process_which_has_no_secrets(run, root, monkeypatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    (root / "trap.txt").write_text("a" * 1_000 + "!")
    before = await processes_at_rest()
    search = asyncio.create_task(run("search_files", query="(a+)+$", regex=True))
    process = Path("/proc", await new_process(before))
    while b"search_process" not in (process / "cmdline").read_bytes():  # noqa: ASYNC110 - it is forked, but not started
        await asyncio.sleep(0.001)
    assert b"A_KEY" not in (process / "environ").read_bytes()
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    assert child_processes() == before


@pytest.mark.parametrize("regex", [False, True])
async def test_concurrent_searches_share_a_few_processes(root: Path, regex: bool) -> None:
    workspaces = [await tools_in(root / name) for name in ("one", "two", "three")]
    for name in ("one", "two", "three"):
        (root / name / "a.md").write_text(f"cake {name}")
    most = 0
    searches = [tools["search_files"].execute({"query": "cake", "regex": regex}) for tools in workspaces * 30]
    asked = asyncio.gather(*searches)
    while not asked.done():
        most = max(most, len(search_processes()))
        await asyncio.sleep(0.001)
    assert 0 < most <= 4
    assert [said(result) for result in asked.result()] == [
        "a.md:1: cake one",
        "a.md:1: cake two",
        "a.md:1: cake three",
    ] * 30


async def test_endless_searches_do_not_block_another_workspace(root: Path) -> None:
    slow, quick = [await tools_in(root / name) for name in ("slow", "quick")]
    (root / "slow" / "trap.txt").write_text("a" * 1_000 + "!")
    (root / "quick" / "a.md").write_text("cake")
    trap = {"query": "(a+)+$", "regex": True}
    searches = [asyncio.create_task(slow["search_files"].execute(trap)) for _ in range(4)]
    await asyncio.sleep(0)
    assert said(await quick["search_files"].execute({"query": "cake"})) == "a.md:1: cake"
    assert not any(search.done() for search in searches)
    for search in searches:
        search.cancel()
    assert len(await asyncio.gather(*searches, return_exceptions=True)) == 4


@pytest.mark.parametrize("regex", [False, True])
async def test_a_search_in_many_files_reports_progress(run: Run, root: Path, regex: bool) -> None:
    for number in range(1_001):
        (root / f"{number}.md").write_text("cake" if number == 7 else "bread")
    reports: list[str] = []
    with reporting(reports.append):
        assert said(await run("search_files", query="cake", regex=regex)) == "7.md:1: cake"
    assert reports == ["500 files searched", "1,000 files searched"]


async def test_write_file_replaces_or_appends_and_keeps_permissions(run: Run, root: Path) -> None:
    said(await run("write_file", path="a.sh", content="one\n"))
    (root / "a.sh").chmod(0o700)
    said(await run("write_file", path="a.sh", content="two\n", append=True))
    assert (root / "a.sh").read_text() == "one\ntwo\n"
    assert "6 bytes" in said(await run("write_file", path="a.sh", content="three\n"))
    assert (root / "a.sh").read_text() == "three\n"
    assert (root / "a.sh").stat().st_mode & 0o777 == 0o700
    assert names_in(root) == ["a.sh"]


async def test_a_write_over_the_limit_leaves_the_file_unchanged(run: Run, root: Path) -> None:
    (root / "a.txt").write_text("x" * 10)
    assert "1,000,000 bytes" in refused(await run("write_file", path="a.txt", content="y" * 1_000_001))
    assert "1,000,000 bytes" in refused(await run("write_file", path="a.txt", content="y" * 999_991, append=True))
    assert (root / "a.txt").read_text() == "x" * 10
    assert names_in(root) == ["a.txt"]


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("read_file", {}, "'path' is missing"),
        ("read_file", {"path": 3}, "'path'"),
        ("read_file", {"path": "a", "offset": 0}, "'offset'"),
        ("read_file", {"file": "a"}, "there is no 'file'; there are: path, offset, limit"),
        ("search_files", {"query": ""}, "'query'"),
        ("search_files", {"query": "[a-", "regex": True}, "not a regular expression: unterminated"),
        ("list_files", {"pattern": "x" * 10**6}, "'pattern': String should have at most 500 characters"),
        ("write_file", {"path": "a"}, "'content' is missing"),
        ("list_files", "everything", "list_files: "),
        ("list_files", None, "list_files: "),
    ],
)
async def test_the_result_of_invalid_input_names_the_error(tools, name, given, reason) -> None:
    assert reason in refused(await tools[name].execute(given))


def test_labels_are_short_and_name_the_action(tools: dict[str, Any]) -> None:
    assert tools["read_file"].label({"path": "notes.md"}) == "Reading notes.md"
    assert tools["list_files"].label({}) == "Listing files"
    assert tools["list_files"].label({"path": "plans"}) == "Listing files in plans"
    assert tools["search_files"].label({"query": "budget"}) == "Searching for “budget”"
    assert tools["write_file"].label({"path": "plan.md", "content": "…"}) == "Writing plan.md"
    long = tools["read_file"].label({"path": "folder/" * 40 + "notes.md"})
    assert len(long) < 60
    assert long.endswith("folder/notes.md")
    for invalid in (None, "x", {}, {"path": None}, {"path": 3, "query": []}):
        assert all(tool.label(invalid) for tool in tools.values())
