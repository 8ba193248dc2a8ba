"""`tool-skills`: instructions for special tasks, which the model reads when it needs them.

A skill is a folder with a file `SKILL.md`: first its name and description as YAML between two lines `---`, then the
instructions. Further files in the folder belong to it. See https://agentskills.io/specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from pydantic import Field, field_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import run_blocking
from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceFolder
from orchestrator_interactive.validated_tool import ValidatedTool

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

_FILE = "SKILL.md"
_MOST_CHARS = 100_000
_MOST_FILES = 100
_DESCRIPTION_CHARS = 1_024


class SkillsOptions(Options):
    """Options of `tool-skills`; `folders` have a folder for each skill."""

    folders: tuple[Path, ...] = Field(min_length=1)

    @field_validator("folders", mode="before")
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given


class _Head(Options):
    model_config: ClassVar[Any] = {"extra": "ignore", "frozen": True}

    name: str = Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$")
    description: str = Field(min_length=1, max_length=_DESCRIPTION_CHARS)


class _Input(Options):
    skill: str = Field(description="The name of the skill.")
    file: str = Field(_FILE, description="Another file of the skill, such as examples/letter.md.")


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill: its name, its purpose, and its folder."""

    name: str
    description: str
    folder: Path


def skills_in(folders: tuple[Path, ...]) -> dict[str, Skill]:
    """Return the skills in folders by name; those of a later folder replace earlier ones.

    Raises:
        ValueError: a folder cannot be read or has no skill, or the head of a skill is invalid.
    """
    found = {}
    for folder in (each.expanduser() for each in folders):
        if not (paths := sorted(folder.glob(f"*/{_FILE}"))):
            raise ValueError(f"{folder} has no skill: each one is a folder with a file {_FILE}.")
        for path in paths:
            head = _head_of(path)
            if head.name != path.parent.name:
                raise ValueError(f"{path}: the name {head.name!r} must be that of its folder, {path.parent.name!r}.")
            found[head.name] = Skill(head.name, " ".join(head.description.split()), path.parent)
    return found


def _head_of(path: Path) -> _Head:
    try:
        text = path.read_text(encoding="utf-8")
        first, _, rest = text.partition("\n")
        head, end, _ = rest.partition("\n---")
        given = yaml.safe_load(head)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise ValueError(f"{path} cannot be read: {e}") from e
    if first.strip() != "---" or not end or not isinstance(given, dict):
        raise ValueError(f"{path} must begin with a line `---`, `name: …`, `description: …` and a line `---`.")
    return validate(_Head, given, str(path))


class LoadSkillTool(ValidatedTool[_Input]):
    """Returns the instructions of a skill, or another of its files."""

    name = "load_skill"
    side_effect_free: ClassVar[bool] = True
    input_kind = _Input
    refusals = (ValueError, OSError)

    def __init__(self, skills: dict[str, Skill]) -> None:
        self._skills = skills
        listed = "\n".join(f"- {each.name}: {each.description}" for each in skills.values())
        self.description = f"Read the instructions for a special task before you begin it. Skills:\n{listed}"

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        return f"Reading the skill {input.get('skill', '')}".strip()

    async def _work(self, wanted: _Input) -> str:
        skill = self._skills.get(wanted.skill)
        if skill is None:
            raise ValueError(f"There is no skill {wanted.skill!r}. Skills: {', '.join(self._skills)}.")
        return await run_blocking(skill.folder, _read, skill, wanted.file)


def _read(skill: Skill, name: str) -> str:
    with WorkspaceFolder(skill.folder).open(name) as file:
        text = file.read(4 * _MOST_CHARS).decode(errors="replace")[:_MOST_CHARS]
    if name != _FILE:
        return text
    body = text.partition("\n---")[2].partition("\n")[2].strip()
    paths = sorted(path for path in skill.folder.rglob("*") if path.is_file() and path.name != _FILE)[:_MOST_FILES]
    files = "\n".join(f"- {path.relative_to(skill.folder)}" for path in paths)
    return f"{body}\n\nFiles of this skill:\n{files}" if files else body


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `load_skill`, whose description lists the skills.

    Raises:
        ValueError: an unknown option, or a folder or a skill that cannot be read.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(SkillsOptions, config, "tool-skills")
    tool = LoadSkillTool(await run_blocking("skills", skills_in, options.folders))
    await coordinator.mount("tools", tool, name=tool.name)
