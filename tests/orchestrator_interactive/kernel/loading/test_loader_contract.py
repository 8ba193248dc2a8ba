"""Module Source Protocol: resolvers, sources, fallbacks and errors of the module loader."""

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator_interactive import kernel
from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator, ModuleLoader
from orchestrator_interactive.kernel.contracts import protocols
from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's

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
    """The document's resolver: overrides first, then the hint of the profile; None leaves a module to entry points."""

    def __init__(self, **overrides: Any) -> None:
        self.overrides = {module_id.replace("_", "-"): source for module_id, source in overrides.items()}
        self.asked: list[tuple[str, Any]] = []

    def resolve(self, module_id: str, profile_hint: Any = None) -> Any:
        self.asked.append((module_id, profile_hint))
        if module_id in self.overrides:
            return self.overrides[module_id]
        if profile_hint:
            return FileSource(Path(profile_hint))
        return None


class FailingSource:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def resolve(self) -> Path:
        raise self._error


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write the package of a module into its own folder; return the folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def make(module_id: str, code: str | None = None) -> Path:
        package = "amplifier_module_" + module_id.replace("-", "_")
        monkeypatch.delitem(sys.modules, package, raising=False)
        folder = tmp_path / f"amplifier-module-{module_id}" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(MOUNTS.format(name=module_id) if code is None else code)
        return folder.parent

    return make


class SmallCoordinator:
    def get(self, mount_point: str) -> Any:
        raise ValueError(f"Unknown mount point '{mount_point}'.")


class TestModuleSourceProtocols:
    def test_a_source_and_a_resolver_have_the_documented_parameters(self) -> None:
        assert list(inspect.signature(protocols.ModuleSource.resolve).parameters) == ["self"]
        parameters = inspect.signature(protocols.ModuleSourceResolver.resolve).parameters
        assert list(parameters) == ["self", "module_id", "profile_hint"]
        assert parameters["profile_hint"].default is None


class TestModuleLoaderAPI:
    @pytest.mark.parametrize("given", ["the coordinator", "nothing", "a coordinator without the mount point"])
    async def test_without_a_resolver_entry_points_are_used(self, coordinator: ModuleCoordinator, given: str) -> None:
        loaders = {"the coordinator": ModuleLoader(coordinator), "nothing": ModuleLoader()}
        loader = loaders.get(given) or ModuleLoader(SmallCoordinator())
        await (await loader.load("tool-todo"))(coordinator)
        assert "todo" in coordinator.get("tools")

    async def test_a_resolver_is_asked_with_module_id_and_source(self, coordinator, make_module) -> None:
        source = str(make_module("tool-one"))
        resolver = MyCustomResolver()
        await coordinator.mount("module-source-resolver", resolver)
        await coordinator.loader.load("tool-one", {}, source)
        assert resolver.asked == [("tool-one", source)]

    async def test_each_load_from_the_resolved_path_has_its_own_config(self, coordinator, make_module) -> None:
        source = FileSource(make_module("tool-todo"))  # also an installed module
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_todo=source))
        mounts = [await coordinator.loader.load("tool-todo", {"name": name}) for name in ("a", "b")]
        for mount in mounts:
            await mount(coordinator)
        tools = coordinator.get("tools")
        assert list(tools) == ["a", "b"]
        assert type(tools["a"]) is type(tools["b"])

    async def test_without_a_resolver_a_source_is_ignored_with_a_warning(
        self, shipped_plan: dict[str, Any], logs
    ) -> None:
        entry = {"module": "tool-todo", "source": "git+https://example.com/tool-todo"}
        async with AmplifierSession({**shipped_plan, "tools": [entry]}) as session:
            assert list(session.coordinator.get("tools")) == ["todo"]
        (ignored,) = logs.named("module.source_ignored")
        assert (ignored["log_level"], ignored["module"], ignored["source"]) == ("warning", *entry.values())
        assert "mount a module-source-resolver" in ignored["what_to_do"]


class TestMountingACustomResolver:
    async def test_a_session_uses_it_for_the_plan(self, shipped_plan: dict[str, Any], make_module) -> None:
        entry = {"module": "tool-five", "source": str(make_module("tool-five"))}
        session = AmplifierSession({**shipped_plan, "tools": [entry]})
        session.coordinator.mount("module-source-resolver", MyCustomResolver())
        async with session:
            assert list(session.coordinator.get("tools")) == ["tool-five"]
            assert session.coordinator.get("providers", "demo") is not None

    async def test_a_resolver_is_used_from_the_next_load_on(self, coordinator: ModuleCoordinator, make_module) -> None:
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
        # location.py reads the pyproject.toml of a module.
        files = [path for path in folder.rglob("*.py") if path.name != "location.py"]
        assert {name for path in files for name in _imports(path)} & policy == set()


def _imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}


class TestModuleNotFoundError:
    async def test_it_names_the_module_what_was_tried_and_a_remedy(self, tmp_path: Path) -> None:
        with pytest.raises(ModuleNotFoundError) as raised:
            await ModuleLoader(search_paths=[tmp_path]).load("tool-imaginary")
        words = ("tool-imaginary", "tool-todo", "install", "amplifier.modules", str(tmp_path))
        assert [word for word in words if word not in str(raised.value)] == []

    @pytest.mark.parametrize("source", [None, "somewhere"])
    async def test_a_resolvers_error_is_propagated(self, coordinator, source: str | None) -> None:
        missing = FailingSource(ModuleNotFoundError("The source of 'tool-todo' is gone."))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_todo=missing))
        with pytest.raises(ModuleNotFoundError, match="is gone"):
            await coordinator.loader.load("tool-todo", {}, source)

    async def test_a_resolver_that_returns_none_leaves_the_module_to_the_entry_points(self, coordinator) -> None:
        await coordinator.mount("module-source-resolver", MyCustomResolver())
        await (await coordinator.loader.load("tool-todo"))(coordinator)
        assert "todo" in coordinator.get("tools")
        with pytest.raises(ModuleNotFoundError, match=r"tool-imaginary.*Installed modules"):
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
    async def test_the_error_of_a_broken_module_gives_the_reason(self, coordinator, make_module, code, said) -> None:
        source = FileSource(make_module("tool-broken", code))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_broken=source))
        with pytest.raises(ModuleLoadError, match=f"tool-broken.*{said}"):
            await coordinator.loader.load("tool-broken")

    @pytest.mark.parametrize("package", ["weather_flat", "src/weather_nested"])
    async def test_a_folder_with_one_package_of_any_name_is_a_source(self, coordinator, tmp_path, package) -> None:
        for name in (package, "tests", "not-importable"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "__init__.py").write_text(MOUNTS.format(name=name))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_weather=FileSource(tmp_path)))
        await (await coordinator.loader.load("tool-weather"))(coordinator)
        assert list(coordinator.get("tools")) == [package]

    async def test_a_folder_with_several_packages_is_an_error_that_names_them(self, coordinator, tmp_path) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").touch()
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_weather=FileSource(tmp_path)))
        with pytest.raises(ModuleLoadError, match=r"several modules.*one.*two"):
            await coordinator.loader.load("tool-weather")

    async def test_a_path_without_a_module_is_an_error(self, coordinator: ModuleCoordinator, tmp_path: Path) -> None:
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_absent=FileSource(tmp_path)))
        with pytest.raises(ModuleLoadError, match=r"tool-absent.*cannot be imported"):
            await coordinator.loader.load("tool-absent")

    async def test_an_unreadable_source_is_an_error(self, coordinator: ModuleCoordinator) -> None:
        unreadable = FailingSource(PermissionError("keep out"))
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_locked=unreadable))
        with pytest.raises(ModuleLoadError, match=r"tool-locked.*keep out") as raised:
            await coordinator.loader.load("tool-locked", {}, "somewhere")
        assert isinstance(raised.value.__cause__, PermissionError)

    async def test_the_error_names_a_resolver_that_returns_no_source(self, coordinator) -> None:
        await coordinator.mount("module-source-resolver", MyCustomResolver(tool_odd="a/path"))
        with pytest.raises(ModuleLoadError, match=r"tool-odd.*MyCustomResolver"):
            await coordinator.loader.load("tool-odd")

    @pytest.mark.parametrize("point", ["orchestrator", "context"])
    async def test_the_error_names_a_module_that_does_not_implement_its_protocol(
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
