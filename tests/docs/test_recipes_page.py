from __future__ import annotations

import re

import pytest
import yaml

from orchestrator_interactive.recipes.library import RecipesOptions, recipes_of
from orchestrator_interactive.recipes.schema import (
    AgentStep,
    ApprovalStep,
    JudgeStep,
    Step,
    ToolStep,
    WorkerStep,
    read_recipe,
)
from service.config.config import load_config
from service.sessions.mount_plan import find_problems, mount_plan


async def test_the_configuration_is_valid(page, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
    configuration, example = page.blocks("yaml")
    (tmp_path / "release_notes.yaml").write_text(example)
    (tmp_path / "agents.yaml").write_text(configuration)
    (instance,) = load_config(tmp_path / "agents.yaml").instances.values()
    assert await find_problems(mount_plan(instance, "provider-demo", tmp_path)) == []


def test_the_example_is_valid(page):
    assert len(read_recipe(page.blocks("yaml")[1], "the example").steps) == 6


def test_the_tables_list_every_field_of_a_step(page):
    assert [row[0].strip("`") for row in page.table("field")] == list(Step.model_fields)
    listed = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in page.table("step")}
    kinds = {"agent": AgentStep, "tool": ToolStep, "worker": WorkerStep, "approval": ApprovalStep, "judge": JudgeStep}
    own = {name: set(kind.model_fields) - set(Step.model_fields) - {name} for name, kind in kinds.items()}
    assert listed == {**own, "judge": own["judge"] | {"retries"}}


@pytest.mark.parametrize("name", ["code_review", "research", "weekly_summary"])
def test_the_table_lists_each_shipped_recipe_with_its_inputs(page, name):
    recipe = recipes_of(RecipesOptions())[name]
    row = next(row for row in page.table("recipe") if row[0] == f"`{name}`")
    assert set(re.findall(r"`(\w+)`", row[1])) == set(recipe.inputs)
    assert yaml.safe_dump(dict(recipe.source))
