"""The built wheels, each in an environment that has nothing of the checkout."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import aiohttp
import pytest

ROOT = Path(__file__).parents[2]
LOOP = "orchestrator_interactive"
PACKAGES = (LOOP, "connector", "service", "local_slack")
THIS = f"python3.{sys.version_info.minor}"
PYTHONS = [THIS, *(p for n in range(11, 20) if (p := f"python3.{n}") != THIS and shutil.which(p))]

# Mounts the loop in a session of amplifier-core and runs a turn with a tool, as that kernel's applications do.
TURN = """
import asyncio, os, sys
from pathlib import Path
from amplifier_core import AmplifierSession
from amplifier_core.module_sources import ModuleSource

class Source(ModuleSource):
    def resolve(self):
        return Path(sys.argv[1])

class Resolver:
    def resolve(self, module_id, source_hint=None, profile_hint=None):
        if source_hint is None:
            from amplifier_core.module_sources import ModuleNotFoundError
            raise ModuleNotFoundError(module_id)
        return Source()

async def turn():
    loop = {"module": "loop-interactive", **({"source": "git+https://x#subdirectory=y"} if len(sys.argv) > 1 else {})}
    demo = {"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}
    plan = {"session": {"orchestrator": loop, "context": {"module": "context-simple"}}, "providers": [demo],
            "tools": [{"module": "tool-todo"}]}
    session = AmplifierSession(plan)
    if len(sys.argv) > 1:
        await session.coordinator.mount("module-source-resolver", Resolver())
    async with session:
        print(type(session.coordinator.get("orchestrator")).__module__, await session.execute("hello"))
        print(sys.modules["orchestrator_interactive"].__file__)
asyncio.run(turn())
slack = {name.partition(".")[0] for name in sys.modules} & {"slack_sdk", "slack_bolt", "connector", "service", "click"}
assert not slack, slack
sys.stdout.flush()
os._exit(0)  # amplifier-core sometimes crashes while the interpreter ends
"""


def ended(*command: str | Path) -> subprocess.CompletedProcess[str]:
    ours = ("PYTHON", "ANTHROPIC_", "SLACK_", "AMPLIFIER_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False)  # noqa: S603 - our own


def run(*command: str | Path) -> str:
    finished = ended(*command)
    assert finished.returncode == 0, finished.stderr + finished.stdout
    return finished.stdout


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """The wheels of the service and of the loop, by name; built from a copy, without a network."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in (*PACKAGES, "amplifier_slack.py", "pyproject.toml", "README.md", "LICENSE"):
        source, copy = ROOT / name, folder / "copy" / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, copy, ignore=ignored) if source.is_dir() else shutil.copy(source, copy)
    for project in (".", LOOP):
        # Without the path of the tests' checkout, the build finds nothing but its folder.
        run_in = [
            "sh",
            "-c",
            f"cd {folder}/copy/{project} && exec {sys.executable} -m hatchling build -t wheel -d {folder}",
        ]
        run(*run_in)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture
def installed(tmp_path):
    """Install a wheel into an empty environment; return the folder of its commands."""

    def install(wheel: Path, python: str = THIS) -> Path:
        commands = tmp_path / "venv/bin"
        if ended(
            sys.executable if python == THIS else python, "-m", "venv", "--without-pip", commands.parent
        ).returncode:
            pytest.skip(f"{python} makes no environment")
        pip = (
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--python",
            commands / "python",
            "install",
            "-q",
        )
        if python == THIS:
            run(*pip, "--no-deps", "--no-index", wheel)
            # The packages of the tests' environment, without its own .pth files: the checkout is not among them.
            (packages,) = commands.parent.glob("lib/python*/site-packages")
            (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
        else:
            try:
                run(*pip, wheel)
            except AssertionError as e:
                pytest.skip(f"the dependencies cannot be had for {python}: {e}")
        return commands

    return install


def test_the_wheels_have_types_data_and_licences_and_one_list_of_the_loops_parts(wheels):
    names = {name: set(zipfile.ZipFile(wheel).namelist()) for name, wheel in wheels.items()}
    service, loop = names["amplifier_slack"], names["amplifier_module_loop_interactive"]
    assert {f"{package}/py.typed" for package in PACKAGES} <= service
    assert {
        "amplifier_slack.py",
        "service/play/config.yaml",
        "service/play/notes/roadmap.md",
        "service/play/scene.json",
        "local_slack/page/index.html",
    } <= service
    assert any(name.endswith("/licenses/LICENSE") for name in service)
    assert {name for name in service if name.startswith(f"{LOOP}/")} == {n for n in loop if ".dist-info" not in n} - {
        f"{LOOP}/LICENSE"
    }
    assert not [name for name in service | loop if "__pycache__" in name or name.endswith("pyproject.toml")]


def test_the_project_of_the_loop_agrees_with_that_of_the_service():
    whole, loop = (tomllib.loads((path / "pyproject.toml").read_text())["project"] for path in (ROOT, ROOT / LOOP))
    for key in ("version", "license", "requires-python"):
        assert loop[key] == whole[key]
    assert loop["entry-points"]["amplifier.modules"] == whole["entry-points"]["amplifier.modules"]
    assert set(loop["dependencies"]) < set(whole["dependencies"])


@pytest.mark.timeout(300)  # the dependencies of another Python are downloaded
@pytest.mark.parametrize("python", PYTHONS)
async def test_a_wheel_plays_in_an_empty_environment(wheels, installed, tmp_path, python):
    command = installed(wheels["amplifier_slack"], python) / "amplifier-slack"
    assert re.fullmatch(r"amplifier-slack, version \d+\.\d+\.\d+\n", run(command, "--version"))
    (tmp_path / "service").mkdir()
    (tmp_path / "service/__init__.py").write_text("raise ImportError('This is the code of a user.')")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    pipe = asyncio.subprocess.PIPE
    play = await asyncio.create_subprocess_exec(command, "play", "--port", "0", env=env, cwd=tmp_path, stdout=pipe)
    try:
        async with (
            asyncio.timeout(40),
            aiohttp.ClientSession(headers={"Authorization": "Bearer xoxp-local-ana"}) as ana,
        ):
            while not (url := re.search(rb"http://\S+/", await play.stdout.readline())):
                assert not play.stdout.at_eof()
            api = url[0].decode() + "api/"
            said = {"channel": "C0GENERAL", "text": "<@U0ALPHA> hello"}
            ts = (await (await ana.post(api + "chat.postMessage", json=said)).json())["ts"]
            answer = ""
            while "offline demo" not in answer:
                await asyncio.sleep(0.1)
                answer = await (
                    await ana.get(api + "conversations.replies", params={"channel": "C0GENERAL", "ts": ts})
                ).text()
    finally:
        play.terminate()
        await play.wait()
    config = tmp_path / ".local/share/amplifier-slack/play/config.yaml"
    assert (config.parent / "notes/roadmap.md").exists()
    assert ts in run(command, "conversations", "list", "--config", config)


def test_a_file_of_another_distribution_over_one_of_ours_is_reported(wheels, installed):
    commands = installed(wheels["amplifier_slack"])
    (service,) = commands.parent.glob("lib/python*/site-packages/service/__init__.py")
    service.write_text("'''The service layer of another project.'''")
    finished = ended(commands / "amplifier-slack", "--version")
    assert (finished.returncode, finished.stdout) == (1, "")
    assert finished.stderr.startswith(
        f"Error: the Python package `service` of amplifier-slack is hidden or overwritten by {service}."
    )


@pytest.mark.parametrize("source", [False, True], ids=["by its entry point", "as a source"])
def test_amplifier_core_runs_a_turn_with_the_loop_of_its_own_wheel(wheels, installed, source):
    commands = installed(wheels["amplifier_module_loop_interactive"])
    (packages,) = commands.parent.glob("lib/python*/site-packages")
    said = run(commands / "python", "-c", TURN, *([packages / LOOP] if source else []))
    assert "orchestrator_interactive.loop.orchestrator" in said
    assert "offline demo" in said
    assert str(packages) in said
