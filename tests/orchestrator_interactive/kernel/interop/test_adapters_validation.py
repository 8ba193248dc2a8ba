"""The command `amplifier-core validate` with each of our modules."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

import orchestrator_interactive
from orchestrator_interactive import modules

LOOP = Path(orchestrator_interactive.__file__).parent
MODULES = Path(modules.__file__).parent
HANG_S = 30  # the command takes a second


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("orchestrator", LOOP),
        ("context", MODULES / "context_simple"),
        ("context", MODULES / "context_stack"),
        ("provider", MODULES / "provider_anthropic"),
        ("provider", MODULES / "provider_demo"),
        ("tool", MODULES / "tool_filesystem"),
        ("tool", MODULES / "tool_todo.py"),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
async def test_a_shipped_module_is_valid(kind: str, path: Path) -> None:
    code, said = await validate(kind, path)
    assert "PASSED" in said, said
    assert "(0 errors, 0 warnings)" in said, said
    assert "✗" not in said, said
    assert code <= 0, said  # amplifier-core may end with a signal: see `ProcessExit`


async def test_a_broken_module_is_invalid(tmp_path: Path) -> None:
    broken = tmp_path / "broken_tool.py"
    broken.write_text("async def mount(coordinator, config):\n    return None\n", encoding="utf-8")
    code, said = await validate("tool", broken)
    assert "FAILED" in said
    assert code != 0


async def validate(kind: str, path: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("amplifier-core")),
        "validate",
        kind,
        str(path),
        env={**os.environ, "ANTHROPIC_API_KEY": "k"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(HANG_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode()
