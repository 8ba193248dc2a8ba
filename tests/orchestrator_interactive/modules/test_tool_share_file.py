"""`share_file` shares regular files of the workspace only, each content once, and nothing without a person there."""

from __future__ import annotations

import os
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.modules.tool_share_file import mount


class Slack:
    """Uploads over HTTP, and the shared files."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.asked: list[dict[str, Any]] = []
        self.shared: list[tuple[str, list[dict[str, str]], str]] = []
        self.status = 200
        self.url = ""

    async def upload(self, **given: Any) -> dict[str, str]:
        self.asked.append(given)
        return {"url": self.url, "id": f"F{len(self.asked)}"}

    async def receive(self, request: web.Request) -> web.Response:
        self.contents.append(await request.read())
        return web.Response(status=self.status)

    async def state(self) -> dict[str, Any]:
        return {"since_s": 0.0, "digests": [file["digest"] for _, files, _ in self.shared for file in files]}

    async def share(self, share_id: str, files: list[dict[str, str]], comment: str) -> None:
        self.shared.append((share_id, files, comment))


@pytest.fixture
async def slack():
    slack = Slack()
    app = web.Application()
    app.router.add_post("/upload", slack.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slack.url = f"http://127.0.0.1:{runner.addresses[0][1]}/upload"
    yield slack
    await runner.cleanup()


@pytest.fixture
def workspace(tmp_path):
    """A workspace between folders of others, with links and special files in it."""
    root, other = tmp_path / "T1:C1:1.0", tmp_path / "T1:C1:2.0"
    for folder in (root / "out", root / "files" / "F1", other):
        folder.mkdir(parents=True)
    (root / "out" / "report.md").write_text("All is well.")
    (root / "chart.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (root / "run.py").write_text("print(1)")
    (root / "empty.txt").touch()
    (root / "files" / "F1" / "sent.txt").write_text("by a person")
    (other / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(other / "secret.txt")
    (root / "folder").symlink_to(other)
    (root / "passwd").symlink_to("/etc/passwd")
    os.link(other / "secret.txt", root / "hard.txt")
    os.mkfifo(root / "pipe")
    (root / "<b>*x*_.txt").write_text("odd")
    return root


@pytest.fixture
def mounted(slack, workspace, coordinator):
    async def mounted(**config: Any) -> ModuleCoordinator:
        for name, function in {
            "slack.upload": slack.upload,
            "people.shared": slack.state,
            "people.share": slack.share,
        }.items():
            coordinator.register_capability(name, function)
        await mount(coordinator, {"root": str(workspace), **config})
        return coordinator

    return mounted


async def share(coordinator: ModuleCoordinator, *paths: Any, **more: Any) -> Any:
    return await coordinator.get("tools")["share_file"].execute({"paths": list(paths), **more})


async def test_files_are_uploaded_with_their_kinds_and_shared_together(mounted, slack):
    result = await share(await mounted(), "out/report.md", "chart.png", "run.py", comment="All.", alt_text="A chart")
    assert result.output == "Shared in the thread: report.md, chart.png, run.py."
    assert slack.contents == [b"All is well.", b"\x89PNG\r\n\x1a\n", b"print(1)"]
    assert slack.asked == [
        {"name": "report.md", "size": 12, "alt_text": ""},
        {"name": "chart.png", "size": 8, "alt_text": "A chart"},
        {"name": "run.py", "size": 8, "alt_text": ""},
    ]
    ((_, files, comment),) = slack.shared
    assert [(file["id"], file["title"]) for file in files] == [
        ("F1", "report.md"),
        ("F2", "chart.png"),
        ("F3", "run.py"),
    ]
    assert comment == "All."


async def test_the_same_content_is_shared_once(mounted, slack):
    coordinator = await mounted()
    await share(coordinator, "run.py", title="The script")
    result = await share(coordinator, "run.py", "chart.png")
    assert result.output == "Shared in the thread: chart.png. Shared before: run.py."
    assert [[file["title"] for file in files] for _, files, _ in slack.shared] == [["The script"], ["chart.png"]]


HOSTILE = [
    *("../T1:C1:2.0/secret.txt", "..", ".", "", "/", "out", "out/", "out/..", "out/../..", "./../T1:C1:2.0/secret.txt"),
    *("link.txt", "folder/secret.txt", "folder", "passwd", "hard.txt", "pipe", "/etc/passwd", "/etc/shadow"),
    *("/proc/self/environ", "/proc/self/mem", "/proc/1/root/etc/passwd", "/dev/zero", "/dev/stdin", "/dev/tty"),
    *("//etc/passwd", "file:///etc/passwd", "~/.ssh/id_rsa", "$HOME/.bashrc", "%2e%2e/secret.txt", "..\\secret.txt"),
    *(
        "a\0b",
        "out/report.md\0.txt",
        "x" * 5000,
        "x/" * 3000,
        "\ud800",
        "nothing.txt",
        "out/report.md/x",
        "http://a.b/c",
    ),
    *("empty.txt", "out//../../T1:C1:2.0/secret.txt", "out/./../link.txt", "\n", " ", "*", "out/*", "{run.py,x}"),
]


@pytest.mark.parametrize("path", HOSTILE)
async def test_nothing_else_is_shared(mounted, slack, path):
    result = await share(await mounted(), path)
    assert not result.success
    assert result.error["message"]
    assert slack.contents == slack.shared == []


# Two others name a file of the workspace in a text.
@pytest.mark.parametrize("path", [each for each in HOSTILE if "\0.txt" not in each and "{" not in each])
async def test_an_answer_that_names_something_else_shares_nothing(mounted, slack, path):
    coordinator = await mounted()
    await coordinator.get_capability("files.share_referred")(f"See `{path}`, [it]({path}) and {path} too.")
    assert slack.contents == slack.shared == []


@pytest.mark.parametrize("given", [{"paths": []}, {"paths": ["run.py"] * 11}, {"paths": "run.py"}, {}, {"paths": [1]}])
async def test_wrong_arguments_are_explained(mounted, slack, given):
    result = await (await mounted()).get("tools")["share_file"].execute(given)
    assert "paths" in result.error["message"]
    assert not slack.shared


async def test_a_file_that_is_too_large_is_refused(mounted, slack, workspace):
    (workspace / "large.bin").write_bytes(b"x" * 1001)
    result = await share(await mounted(max_mb=0.001), "large.bin")
    assert result.error["message"] == "'large.bin' is larger than 0.001 MB. Share a part of it."
    assert not slack.contents


async def test_an_upload_that_fails_shares_nothing(mounted, slack):
    slack.status = 500
    result = await share(await mounted(), "run.py", "chart.png")
    assert result.error["message"] == "Slack did not take 'run.py'. Try again later."
    assert not slack.shared


async def test_without_people_the_model_is_told_what_to_do_instead(coordinator, workspace):
    await mount(coordinator, {"root": str(workspace)})
    assert "in your answer instead" in (await share(coordinator, "run.py")).error["message"]
    await coordinator.get_capability("files.share_referred")("See `run.py`.")


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("It is in `out/report.md`, not in run.pyc.", ["report.md"]),
        ("See [the report](./out/report.md) or [it](sandbox:out/report.md).", ["report.md"]),
        ("I wrote run.py and chart.png.", ["run.py", "chart.png"]),
        ("See `<b>*x*_.txt`.", ["<b>*x*_.txt"]),
        ("You sent files/F1/sent.txt.", []),
        ("See https://a.b/run.py or ana@run.py", []),
        ("Nothing is named here. Run it.", []),
    ],
)
async def test_an_answer_shares_the_files_that_it_names(mounted, slack, answer, names):
    coordinator = await mounted()
    await coordinator.get_capability("files.share_referred")(answer)
    assert [file["name"] for _, files, _ in slack.shared for file in files] == names


async def test_an_answer_shares_no_unchanged_file_of_the_template(mounted, slack, workspace, tmp_path):
    template = tmp_path / "template"
    (template / "out").mkdir(parents=True)
    (template / "run.py").write_bytes((workspace / "run.py").read_bytes())
    (template / "out" / "report.md").write_text("All is open.")
    coordinator = await mounted()
    coordinator.register_capability("workspace.template", str(template))
    await coordinator.get_capability("files.share_referred")("See `run.py`, `out/report.md` and `chart.png`.")
    assert [file["name"] for _, files, _ in slack.shared for file in files] == ["report.md", "chart.png"]


@given(st.text(st.sampled_from("`[](). /\\nrunpyout.md-_:@"), max_size=200))
def test_any_answer_can_be_searched(answer):
    from orchestrator_interactive.modules.tool_share_file import _NAMED  # noqa: PLC0415

    assert all(len(found[0]) < 300 for found in _NAMED.finditer(answer))
