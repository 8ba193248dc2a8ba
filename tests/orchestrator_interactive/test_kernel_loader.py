"""Finding modules: through the mounted resolver, or among what is installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator_interactive.kernel import AmplifierSession, ModuleLoader
from orchestrator_interactive.kernel.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's

if TYPE_CHECKING:
    from pathlib import Path


class _Folder:
    """A resolver, and the source that it finds, for one folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.asked: list[tuple[str, Any]] = []

    def resolve(self, *question: Any) -> Any:
        if not question:
            return self._path
        self.asked.append(question)
        return self


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("good", "mountless", "broken"):
        monkeypatch.delitem(sys.modules, f"amplifier_module_{name}_one", raising=False)
    (tmp_path / "amplifier_module_good_one.py").write_text("async def mount(coordinator, config):\n    return config\n")
    (tmp_path / "amplifier_module_mountless_one.py").write_text("")
    (tmp_path / "amplifier_module_broken_one.py").write_text("import absolutely_absent\n")
    return tmp_path


async def _load(folder: Path, module_id: str) -> Any:
    session = AmplifierSession({"session": {"orchestrator": "o", "context": "c"}})
    resolver = _Folder(folder)
    await session.coordinator.mount("module-source-resolver", resolver)
    mount = await session.loader.load(module_id, {"a": 1}, "hint")
    assert resolver.asked == [(module_id, "hint")]
    return await mount(session.coordinator)


async def test_a_mounted_resolver_is_asked_with_the_hint(folder: Path) -> None:
    assert await _load(folder, "good-one") == {"a": 1}


async def test_a_module_without_mount_cannot_be_used(folder: Path) -> None:
    with pytest.raises(ModuleLoadError, match=r"mountless-one.*mount\(\)"):
        await _load(folder, "mountless-one")


@pytest.mark.parametrize("module_id", ["broken-one", "missing-one"])
async def test_a_module_that_cannot_be_imported_says_so(folder: Path, module_id: str) -> None:
    with pytest.raises(ModuleLoadError, match=module_id):
        await _load(folder, module_id)


async def test_installed_modules_are_found_without_a_resolver() -> None:
    assert callable(await ModuleLoader().load("loop-interactive"))


async def test_a_module_that_is_not_installed_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="tool-imaginary"):
        await ModuleLoader().load("tool-imaginary")
