from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's name
from orchestrator_interactive.kernel.loading.location import import_module, import_mount, locate

_MOUNT = "async def mount(coordinator, config): ...\n"


@pytest.fixture
def project(tmp_path):
    """Writes files into a folder, and forgets afterwards what was imported from it."""

    def write(files: dict[str, str]):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    modules, path = set(sys.modules), list(sys.path)
    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def declares(**entries: str) -> str:
    lines = "\n".join(f'{name} = "{value}"' for name, value in entries.items())
    return f'[project]\nname = "it"\n\n[project.entry-points."amplifier.modules"]\n{lines}\n'


@pytest.mark.parametrize("layout", ["", "src/"])
def test_a_project_is_found_by_its_entry_point(project, layout):
    folder = project({"pyproject.toml": declares(words="my_words:mount"), f"{layout}my_words/__init__.py": _MOUNT})
    location = locate(folder)
    assert location.file == folder / layout / "my_words" / "__init__.py"
    assert location.module_id == "words"
    assert import_mount(location).__module__ == "my_words"


def test_an_entry_point_may_lead_to_a_submodule_and_name_its_function(project):
    files = {"my_words/__init__.py": "", "my_words/module.py": "async def install(coordinator, config): ...\n"}
    folder = project({"pyproject.toml": declares(words="my_words.module:install"), **files})
    for path in (folder, folder / "my_words", folder / "my_words" / "module.py"):
        location = locate(path)
        assert (location.name, location.attribute, location.module_id) == ("my_words.module", "install", "words")
        assert import_mount(location).__name__ == "install"


def test_an_entry_point_may_lead_to_a_single_file(project):
    folder = project({"pyproject.toml": declares(words="words_module:mount"), "words_module.py": _MOUNT})
    assert locate(folder).file == folder / "words_module.py"


def test_an_entry_point_of_poetry_is_found(project):
    toml = '[tool.poetry.plugins."amplifier.modules"]\nwords = "my_words:mount"\n'
    folder = project({"pyproject.toml": toml, "my_words.py": _MOUNT})
    assert locate(folder).module_id == "words"


@pytest.mark.parametrize("layout", ["", "src/"])
def test_without_an_entry_point_the_package_of_the_ecosystem_is_found(project, layout):
    files = {f"{layout}amplifier_module_tool_words/__init__.py": _MOUNT, "pyproject.toml": '[project]\nname = "it"\n'}
    location = locate(project(files))
    assert location.module_id == "tool-words"
    assert location.entry_point is None
    assert location.project is not None


def test_a_package_and_a_file_in_it_are_found_by_their_dotted_name(project):
    folder = project({"outer/__init__.py": "", "outer/inner/__init__.py": _MOUNT, "outer/inner/part.py": _MOUNT})
    assert locate(folder / "outer" / "inner").name == "outer.inner"
    assert locate(folder / "outer" / "inner" / "__init__.py").name == "outer.inner"
    location = locate(folder / "outer" / "inner" / "part.py")
    assert (location.name, location.root, location.project) == ("outer.inner.part", folder, None)
    assert import_module(location).__name__ == "outer.inner.part"


def test_a_folder_without_a_module_is_named_by_its_absolute_path(project, monkeypatch):
    folder = project({"notes.txt": "Hello"})
    monkeypatch.chdir(folder)
    with pytest.raises(ModuleNotFoundError) as error:
        locate(Path())
    assert str(error.value).startswith(f"There is no module in {folder}. ")


def test_the_name_of_an_installed_module_is_no_path():
    with pytest.raises(ModuleNotFoundError) as error:
        locate(Path("tool-todo"))
    assert str(error.value) == (
        "There is nothing at tool-todo. That is the name of an installed module, not a path. "
        "Give the path of 'orchestrator_interactive.modules.tool_todo'."
    )


@pytest.mark.parametrize(
    ("files", "at", "said"),
    [
        ({}, "nothing", "There is nothing at"),
        ({"notes.txt": "Hello"}, "notes.txt", "is not a Python file. Give the folder of a module's project"),
        ({"docs/notes.txt": "Hello"}, "docs", "There is no module in"),
        ({"pyproject.toml": "[project"}, ".", "pyproject.toml cannot be read"),
        ({"pyproject.toml": declares(words="my_words:mount")}, ".", "there is no 'my_words' in"),
        (
            {"pyproject.toml": declares(one="one:mount", two="two:mount"), "one.py": _MOUNT, "two.py": _MOUNT},
            ".",
            "one (one), two (two). Give the package or the file of one of them.",
        ),
        (
            {"amplifier_module_a/__init__.py": _MOUNT, "amplifier_module_b/__init__.py": _MOUNT},
            ".",
            "There are several modules in",
        ),
        ({"pyproject.toml": 'project = "it"'}, ".", "There is no module in"),
    ],
)
def test_an_error_of_location_names_the_remedy(project, files, at, said):
    with pytest.raises(ModuleNotFoundError) as error:
        locate(project(files) / at)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("files", "at", "said"),
    [
        ({"words.py": "x = 1\n"}, "words.py", "words.py has no function mount()."),
        (
            {"words.py": "import nowhere_to_be_found\n"},
            "words.py",
            "No module named 'nowhere_to_be_found' (words.py, line 1)",
        ),
        ({"json.py": _MOUNT}, "json.py", "A module called 'json' is already loaded"),
        ({"sys.py": _MOUNT}, "sys.py", "A module called 'sys' is already loaded (part of Python)"),
        ({"pytest/__init__.py": _MOUNT}, "pytest", "Give it another name."),
    ],
)
def test_an_import_error_names_the_reason(project, files, at, said):
    with pytest.raises(ModuleLoadError) as error:
        import_mount(locate(project(files) / at))
    assert said in str(error.value)


def test_later_imports_search_the_folder_of_the_module_last(project):
    later = "async def mount(coordinator, config):\n    import beside_it\n\n    return beside_it\n"
    folder = project({"words_with_more.py": later, "beside_it.py": ""})
    mount = import_mount(locate(folder / "words_with_more.py"))
    assert sys.path[-1] == str(folder)
    with pytest.raises(StopIteration) as ended:
        mount(None, {}).send(None)
    assert ended.value.value.__name__ == "beside_it"


def test_a_package_of_a_namespace_can_be_imported_twice(project):
    folder = project({"pyproject.toml": declares(words="space.words:mount"), "space/words.py": _MOUNT})
    assert import_mount(locate(folder)) is import_mount(locate(folder))
