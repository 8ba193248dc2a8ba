"""Confinement of the tools to the workspace folder."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.modules import tool_filesystem

SECRET = "the secret text abc"

names = st.sampled_from(["a", "b", "deep", "secret.md", "..", ".", "", "~", "workspace", "outside", "ü", "a b"])
inside_names = st.sampled_from(["a", "b", "deep", "ü"])
targets = st.sampled_from(
    [
        "..",
        "../outside",
        "../outside/secret.md",
        "/",
        "/etc",
        "{outside}",
        "{outside}/secret.md",
        "a",
        "b/a",
        "deep",
        ".",
    ]
)
links = st.lists(st.tuples(st.lists(inside_names, min_size=1, max_size=2), targets), max_size=5)
paths = st.one_of(
    st.lists(names, min_size=1, max_size=6).map("/".join),
    st.lists(names, max_size=3).map(lambda parts: "/".join(["{outside}", *parts])),
    st.lists(names, max_size=3).map(lambda parts: "/".join(["{root}", *parts])),
    st.text(max_size=20),
)


async def tools_in(root: Path) -> dict[str, Any]:
    coordinator = AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator
    await tool_filesystem.mount(coordinator, {"root": str(root)})
    return dict(coordinator.get("tools"))


def with_folders(top: Path) -> tuple[Path, Path]:
    root, outside = top / "workspace", top / "outside"
    (root / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.md").write_text(SECRET)
    return root, outside


def make_link(root: Path, parts: list[str], target: str) -> None:
    path = root.joinpath(*parts)
    if path.parent.is_symlink():
        return  # it would be created outside
    with suppress(OSError):  # an existing name, or a dangling parent link
        path.symlink_to(target)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def everything_under(folder: Path) -> dict[str, str | None]:
    return {str(path): path.read_text() if path.is_file() else None for path in folder.rglob("*")}


@settings(deadline=None)
@given(links=links, tried=st.lists(paths, min_size=1, max_size=4))
async def test_no_path_or_link_leads_outside(links: list[tuple[list[str], str]], tried: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, outside = with_folders(Path(folder))
        tools = await tools_in(root)
        for parts, target in links:
            make_link(root, parts, target.format(outside=outside))
        for path in tried:
            real = path.replace("{outside}", str(outside)).replace("{root}", str(root))
            for name, more in (
                ("write_file", {"content": "mine"}),
                ("read_file", {}),
                ("list_files", {}),
                ("search_files", {"query": "a"}),
                ("move_file", {"to": "moved"}),
                ("delete_file", {"recursive": True}),
            ):
                result = await tools[name].execute({"path": real, **more})
                assert SECRET not in str(result.output)
                assert "secret.md (19" not in str(result.output)
        assert everything_under(outside) == {str(outside / "secret.md"): SECRET}
        assert names_in(root.parent) == ["outside", "workspace"]


@contextmanager
def in_the_background(step: Callable[[], None]) -> Iterator[None]:
    done = threading.Event()

    def repeat() -> None:
        while not done.is_set():
            step()

    worker = threading.Thread(target=repeat)
    worker.start()
    try:
        yield
    finally:
        done.set()
        worker.join()


async def test_a_folder_replaced_by_a_link_during_reads_shows_nothing_outside(tmp_path: Path) -> None:
    root, outside = with_folders(tmp_path)
    tools = await tools_in(root)
    (root / "deep" / "secret.md").write_text("harmless")
    link = tmp_path / "link"
    link.symlink_to(outside)

    def swap_and_swap_back() -> None:
        (root / "deep").rename(tmp_path / "aside")
        link.rename(root / "deep")
        (root / "deep").rename(link)
        (tmp_path / "aside").rename(root / "deep")

    with in_the_background(swap_and_swap_back):
        for _ in range(300):
            read = await tools["read_file"].execute({"path": "deep/secret.md"})
            assert read.output == "harmless" or not read.success
            found = await tools["search_files"].execute({"query": "the secret"})
            assert "text" not in found.output


async def test_a_file_replaced_by_a_link_during_writes_changes_nothing_outside(tmp_path: Path) -> None:
    root, outside = with_folders(tmp_path)
    tools = await tools_in(root)
    spare = root / "spare"

    def swap() -> None:
        spare.symlink_to(outside / "secret.md")
        spare.rename(root / "new.md")
        spare.write_text("plain")
        spare.rename(root / "new.md")

    with in_the_background(swap):
        for number in range(300):
            written = {"path": "new.md", "content": str(number), "append": number % 2 == 0}
            await tools["write_file"].execute(written)
            read = await tools["read_file"].execute({"path": "new.md"})
            assert SECRET not in str(read.output)
    assert everything_under(outside) == {str(outside / "secret.md"): SECRET}
