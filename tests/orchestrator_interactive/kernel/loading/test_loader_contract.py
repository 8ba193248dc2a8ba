"""Module Source Protocol: where modules come from, and what is said when they do not."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator_interactive import kernel
from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator, ModuleLoader
from orchestrator_interactive.kernel.contracts import protocols
from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's

if TYPE_CHECKING:
    from collections.abc import Callable

MOUNTS = """
class Tool:
    name = description = "{name}"

    async def execute(self, input):
        return input

async def mount(coordinator, config):
    await coordinator.mount("tools", Tool(), name=config.get("name", "{name}"))
"""


class FileSource:
    """The document's source for local paths."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def resolve(self) -> Path:
        return self._path


class MyCustomResolver:
    """The document's resolver: overrides, then the hint of the profile."""

    def __init__(self, **overrides: Any) -> None:
        self.overrides = {module_id.replace("_", "-"): source for module_id, source in overrides.items()}
        self.asked: list[tuple[str, Any]] = []

    def resolve(self, module_id: str, profile_hint: Any = None) -> Any:
        self.asked.append((module_id, profile_hint))
        if module_id in self.overrides:
            return self.overrides[module_id]
        if profile_hint:
            return FileSource(Path(profile_hint))
        raise ModuleNotFoundError(f"No override and no source for '{module_id}'.")


class FailingSource:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def resolve(self) -> Path:
        raise self._error


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes the package of a module into a folder of its own, and gives that folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def make(module_id: str, code: str | None = None) -> Path:
        package = "amplifier_module_" + module_id.replace("-", "_")
        monkeypatch.delitem(sys.modules, package, raising=False)
        folder = tmp_path / f"amplifier-module-{module_id}" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(MOUNTS.format(name=module_id) if code is None else code)
        return folder.parent

    return make


class TestModuleSourceProtocols:
    def test_a_source_resolves_to_a_path(self) -> None:
        assert list(inspect.signature(protocols.ModuleSource.resolve).parameters) == ["self"]

    def test_a_resolver_takes_a_module_id_and_a_hint(self) -> None:
        parameters = inspect.signature(protocols.ModuleSourceResolver.resolve).parameters
        assert list(parameters) == ["self", "module_id", "profile_hint"]
        assert parameters["profile_hint"].default is None


class TestModuleLoaderAPI:
    async def test_without_a_resolver_entry_points_are_used(self, coordinator: ModuleCoordinator) -> None:
        mount = await ModuleLoader(coordinator).load("tool-todo", {})
        await mount(coordinator)
        assert "todo" in coordinator.get("tools")

    @pytest.mark.parametrize("loader", [ModuleLoader(), ModuleLoader(None)], ids=["nothing", "none"])
    async def test_it_works_without_a_coordinator(self, loader: ModuleLoader, coordinator: ModuleCoordinator) -> None:
        await (await loader.load("tool-todo"))(coordinator)
        assert "todo" in coordinator.get("tools")

    async def test_a_coordinator_that_knows_no_such_mount_point_has_no_resolver(
        self, coordinator: ModuleCoordinator
    ) -> None:
        class Small:
            def get(self, mount_point: str) -> Any:
                raise ValueError(f"Unknown mount point '{mount_point}'.")

        small: Any = Small()
        await (await ModuleLoader(small).load("tool-todo"))(coordinator)
        assert "todo" in coordinator.get("tools")

    async def test_a_resolver_is_asked_with_module_id_and_source(
        self, coordinator: ModuleCoordinator, make_module
    ) -> None:
        source = str(make_module("tool-one"))
        resolver = MyCustomResolver()
        await coordinator.mount("module-source-resolver", resolver)
        await coordinator.loader.load("tool-one", {}, source)
        assert resolver.asked == [("tool-one", source)]

    async def test_a_module_is_loaded_from_the_resolved_path_with_its_config(
        self, coordinator: ModuleCoordinator, make_module
    ) -> None:
        await coordinator.mount(
            "module-source-resolver", MyCustomResolver(tool_two=FileSource(make_module("tool-two")))
        )
        mount = await coordinator.loader.load("tool-two", {"name": "configured"})
        await mount(coordinator)
        assert list(coordinator.get("tools")) == ["configured"]

    async def test_the_resolved_path_goes_before_an_installed_module(
        self, coordinator: ModuleCoordinator, make_module
    ) -> None:
        source = FileSource(make_module("tool-todo"))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_todo=source))
        await (await coordinator.loader.load("tool-todo"))(coordinator)
        assert list(coordinator.get("tools")) == ["tool-todo"]

    async def test_each_load_has_its_own_config(self, coordinator: ModuleCoordinator, make_module) -> None:
        source = FileSource(make_module("tool-three"))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_three=source))
        mounts = [await coordinator.loader.load("tool-three", {"name": name}) for name in ("a", "b")]
        for mount in mounts:
            await mount(coordinator)
        assert list(coordinator.get("tools")) == ["a", "b"]


class TestMountingACustomResolver:
    async def test_the_example_runs_as_written(self, coordinator: ModuleCoordinator, make_module) -> None:
        """It mounts without `await`."""
        resolver = MyCustomResolver(tool_four=FileSource(make_module("tool-four")))
        coordinator.mount("module-source-resolver", resolver)
        loader = ModuleLoader(coordinator)
        await (await loader.load("tool-four"))(coordinator)
        assert list(coordinator.get("tools")) == ["tool-four"]

    async def test_a_session_uses_it_for_the_plan(self, shipped_plan: dict[str, Any], make_module) -> None:
        entry = {"module": "tool-five", "source": str(make_module("tool-five"))}
        session = AmplifierSession({**shipped_plan, "tools": [entry]})
        session.coordinator.mount("module-source-resolver", MyCustomResolver())
        async with session:
            assert list(session.coordinator.get("tools")) == ["tool-five"]
            assert session.coordinator.get("providers", "demo") is not None

    async def test_a_mounted_resolver_counts_from_the_next_load_on(
        self, coordinator: ModuleCoordinator, make_module
    ) -> None:
        loader = coordinator.loader
        with pytest.raises(ModuleNotFoundError):
            await loader.load("tool-six")
        coordinator.mount("module-source-resolver", MyCustomResolver(tool_six=FileSource(make_module("tool-six"))))
        await loader.load("tool-six")
        coordinator.unmount("module-source-resolver")
        with pytest.raises(ModuleNotFoundError):
            await loader.load("tool-six")


class TestKernelResponsibilities:
    def test_the_kernel_parses_no_configuration_files_and_has_no_commands(self) -> None:
        policy = {"yaml", "tomllib", "click", "argparse", "configparser"}
        folder = Path(inspect.getfile(kernel)).parent
        # A module's own pyproject.toml, which says where in its folder it lies, is no configuration.
        files = [path for path in folder.rglob("*.py") if path.name != "location.py"]
        files = [path for path in files if "validation" not in path.relative_to(folder).parts]
        assert {name for path in files for name in _imports(path)} & policy == set()


def _imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}


class TestModuleNotFoundError:
    async def test_it_says_what_was_asked_for_what_was_tried_and_what_to_do(self) -> None:
        with pytest.raises(ModuleNotFoundError) as raised:
            await ModuleLoader().load("tool-imaginary")
        said = str(raised.value)
        assert "tool-imaginary" in said
        assert "tool-todo" in said
        assert "install" in said
        assert "amplifier.modules" in said

    async def test_a_resolvers_is_propagated_where_the_plan_gives_a_source(
        self, coordinator: ModuleCoordinator
    ) -> None:
        missing = FailingSource(ModuleNotFoundError("The source of 'tool-todo' is gone."))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_todo=missing))
        with pytest.raises(ModuleNotFoundError, match="is gone"):
            await coordinator.loader.load("tool-todo", {}, "somewhere")

    async def test_without_a_source_a_resolver_leaves_the_module_to_the_fallback(
        self, coordinator: ModuleCoordinator
    ) -> None:
        await coordinator.mount("module-source-resolver", MyCustomResolver())
        await (await coordinator.loader.load("tool-todo"))(coordinator)
        assert "todo" in coordinator.get("tools")

    async def test_what_the_resolver_said_is_in_the_message_when_the_fallback_fails_too(
        self, coordinator: ModuleCoordinator
    ) -> None:
        await coordinator.mount("module-source-resolver", MyCustomResolver())
        with pytest.raises(ModuleNotFoundError, match=r"tool-imaginary.*No override and no source"):
            await coordinator.loader.load("tool-imaginary")


class TestModuleLoadError:
    @pytest.mark.parametrize(
        ("code", "said"),
        [
            ("def mount(:", "cannot be imported"),
            ("import absolutely_absent", "absolutely_absent"),
            ("raise RuntimeError('at import')", "at import"),
            ("x = 1", r"mount\(\)"),
        ],
        ids=["not Python", "missing dependency", "fails", "no mount"],
    )
    async def test_a_module_that_is_found_and_cannot_be_loaded_says_why(
        self, coordinator: ModuleCoordinator, make_module, code: str, said: str
    ) -> None:
        source = FileSource(make_module("tool-broken", code))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_broken=source))
        with pytest.raises(ModuleLoadError, match=f"tool-broken.*{said}"):
            await coordinator.loader.load("tool-broken")

    async def test_a_path_without_a_module_says_so(self, coordinator: ModuleCoordinator, tmp_path: Path) -> None:
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_absent=FileSource(tmp_path)))
        with pytest.raises(ModuleLoadError, match=r"tool-absent.*cannot be imported"):
            await coordinator.loader.load("tool-absent")

    async def test_a_source_that_cannot_be_read_says_so(self, coordinator: ModuleCoordinator) -> None:
        unreadable = FailingSource(PermissionError("keep out"))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_locked=unreadable))
        with pytest.raises(ModuleLoadError, match=r"tool-locked.*keep out") as raised:
            await coordinator.loader.load("tool-locked", {}, "somewhere")
        assert isinstance(raised.value.__cause__, PermissionError)

    @pytest.mark.parametrize("answer", [None, "a/path"], ids=["none", "text"])
    async def test_a_resolver_that_returns_no_source_is_named(
        self, coordinator: ModuleCoordinator, answer: Any
    ) -> None:
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_odd=answer))
        with pytest.raises(ModuleLoadError, match=r"tool-odd.*MyCustomResolver"):
            await coordinator.loader.load("tool-odd")

    @pytest.mark.parametrize("point", ["orchestrator", "context"])
    async def test_a_module_that_does_not_implement_the_protocol_says_so(
        self, shipped_plan: dict[str, Any], make_module, point: str
    ) -> None:
        code = f"async def mount(coordinator, config):\n    await coordinator.mount('{point}', object())\n"
        entry = {"module": "odd-one", "source": str(make_module("odd-one", code))}
        session = AmplifierSession({**shipped_plan, "session": {**shipped_plan["session"], point: entry}})
        session.coordinator.mount("module-source-resolver", MyCustomResolver())
        with pytest.raises(ModuleLoadError, match=f"odd-one.*{point}"):
            await session.initialize()


class TestFallbackBehavior:
    async def test_search_paths_come_after_entry_points(self, make_module, coordinator: ModuleCoordinator) -> None:
        root = make_module("tool-seven").parent
        make_module("tool-todo")
        loader = ModuleLoader(coordinator, search_paths=[root])
        for module_id in ("tool-seven", "tool-todo"):
            await (await loader.load(module_id))(coordinator)
        assert sorted(coordinator.get("tools")) == ["todo", "tool-seven"]

    async def test_a_module_that_is_in_no_search_path_names_them(self, tmp_path: Path) -> None:
        with pytest.raises(ModuleNotFoundError, match=str(tmp_path)):
            await ModuleLoader(search_paths=[tmp_path]).load("tool-imaginary")


class TestKernelInvariants:
    async def test_the_same_inputs_give_the_same_module(self, coordinator: ModuleCoordinator, make_module) -> None:
        source = FileSource(make_module("tool-eight"))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_eight=source))
        for name in ("one", "two"):
            await (await coordinator.loader.load("tool-eight", {"name": name}))(coordinator)
        tools = coordinator.get("tools")
        assert type(tools["one"]) is type(tools["two"])
