from __future__ import annotations

from click.testing import CliRunner

from service.cli.main import main

VALID = "name: trial\ninputs: {topic: {}}\nsteps: [{id: look, tool: look}]\n"
FILE = """
instances:
  alpha:
    persona: {name: Alpha, emoji: ":owl:"}
    instructions: You help.
    tools: [{module: tool-recipes, config: {recipes: recipes, shipped: false}}]
"""


def test_a_valid_recipe_ends_with_0_and_another_one_with_2(tmp_path):
    (tmp_path / "a.yaml").write_text(VALID)
    (tmp_path / "b.yaml").write_text("name: b\nsteps: [{id: look}]\n")
    valid = CliRunner().invoke(main, ["recipe", "validate", str(tmp_path / "a.yaml")])
    assert (valid.exit_code, valid.output) == (0, f"{tmp_path}/a.yaml: the recipe trial is valid: 1 steps.\n")
    other = CliRunner().invoke(main, ["recipe", "validate", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")])
    assert other.exit_code == 2
    assert f"{tmp_path}/b.yaml, step 'look': it needs one of agent" in other.output


def test_the_list_has_the_recipes_of_each_agent_and_a_missing_folder_is_named(tmp_path):
    (tmp_path / "agents.yaml").write_text(FILE)
    missing = CliRunner().invoke(main, ["recipe", "list", "--config", str(tmp_path / "agents.yaml")])
    assert missing.exit_code == 2
    assert f"{tmp_path}/recipes does not exist" in missing.output
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "trial.yaml").write_text(VALID)
    listed = CliRunner().invoke(main, ["recipe", "list", "--config", str(tmp_path / "agents.yaml")])
    assert (listed.exit_code, listed.output) == (0, "alpha:\n  trial topic=…\n      \n")
