from __future__ import annotations

import pytest
import yaml
from recipe_sessions import recipe

from orchestrator_interactive.recipes.inputs import checked_inputs, parsed_inputs, usage
from orchestrator_interactive.recipes.library import RecipesOptions, recipe_named, recipes_of
from orchestrator_interactive.recipes.schema import checked_recipe, read_recipe

ASK = {"id": "ask", "agent": "x", "instruction": "Write."}


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"id": "a"}], "step 'a': it needs one of agent, approval, judge, tool, worker."),
        ([{"tool": "look"}], "step 1: 'id' is missing."),
        ([{**ASK, "instructoin": "x"}], "step 'ask': there is no 'instructoin'; did you mean 'instruction'?"),
        ([ASK, ASK], "step 'ask': the id is used twice."),
        ([{**ASK, "id": "A"}], "step 'A': 'id': String should match pattern"),
        ([{**ASK, "output": "steps"}], "the output 'steps' is a variable of every recipe"),
        ([{**ASK, "instruction": "{{ inputs.q }}"}], "step 'ask': there is no input 'q'; there are: topic."),
        ([{**ASK, "instruction": "{{ steps['ask'].output }}"}], "there is no step 'ask' before it; there are: none."),
        ([{**ASK, "when": "{{ item }}"}], "'item' is unknown; there are: inputs, steps."),
        ([ASK, {**ASK, "id": "b", "instruction": "{{ draft }}"}], "step 'b': 'draft' is unknown"),
        ([{**ASK, "instruction": "{% if %}"}], "step 'ask': The template cannot be read, line 1"),
        ([{"id": "t", "tool": "x", "arguments": {"a": [{"b": "{{ no }}"}]}}], "step 't': 'no' is unknown"),
        ([ASK, {"id": "j", "judge": "other", "agent": "x"}], "'other' must be the step before it, of an agent"),
        ([{**ASK, "for_each": ["a"]}, {"id": "j", "judge": "ask", "agent": "x"}], "of an agent, without 'for_each'"),
        ([ASK, {"id": "j", "judge": "ask", "agent": "x", "when": "no"}], "a judge has neither 'for_each' nor 'when'"),
    ],
)
def test_a_mistake_in_a_step_is_a_sentence_with_its_place(steps, said):
    with pytest.raises(ValueError, match=r"^r: |^r, ") as caught:
        checked_recipe(recipe(*steps, inputs={"topic": {}}), "r")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "r.yaml, line 1: this is not YAML"),
        ("- a", "r.yaml: a recipe is a mapping"),
        ("name: x\nsteps: []", "r.yaml: 'steps': List should have at least 1 item"),
        ("name: x\nstep: []", "there is no 'step'; did you mean 'steps'?"),
        ("a: &a {b: 1}\nname: x\nsteps: &s [*s]", "nested too deeply"),
        ("name: x\nsteps: [{id: a, tool: b}]\nreport: '{{ steps.c }}'", "report: there is no step 'c'"),
        ("name: x\nsteps: [{id: a, tool: b}]\ninputs: {n: {type: integer, default: x}}", "the default does not fit"),
        ("name: x\nsteps: [{id: a, tool: b}]\ninputs: {n: {pattern: '('}}", "is not a regular expression"),
        ("x" * 200_001, "more than 200,000 characters"),
    ],
)
def test_a_mistake_in_a_document_is_a_sentence_with_its_place(text, said):
    with pytest.raises(ValueError, match=r"^r\.yaml") as caught:
        read_recipe(text, "r.yaml")
    assert said in str(caught.value)


INPUTS = {
    "topic": {"description": "The subject."},
    "count": {"type": "integer", "default": 2, "minimum": 1},
    "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "required": False},
}


@pytest.mark.parametrize(
    ("words", "inputs"),
    [
        (["topic=a=b"], {"topic": "a=b", "count": 2, "tags": None}),
        (["topic=3", "count=3", "tags=a, b"], {"topic": "3", "count": 3, "tags": ["a", "b"]}),
        (["topic=x", 'tags=["a"]'], {"topic": "x", "count": 2, "tags": ["a"]}),
    ],
)
def test_words_of_people_become_inputs_with_defaults(words, inputs):
    declared = checked_recipe(recipe(ASK, inputs=INPUTS), "r").inputs
    assert checked_inputs(declared, parsed_inputs(declared, words)) == inputs
    assert usage("trial", declared) == "trial topic=… [count=2] [tags=…]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Input 'topic' is missing: The subject."),
        (["topic"], "'topic' is no input: write key=value"),
        (["topic=x", "count=0"], "Input 'count': 0 is less than the minimum of 1."),
        (["topic=x", "count=many"], "Input 'count': 'many' is not of type 'integer'."),
        (["topic=x", "tags=c"], "Input 'tags': 0: 'c' is not one of ['a', 'b']."),
        (["topic=x", "tpoic=y"], "There is no input 'tpoic'; there are: topic, count, tags."),
    ],
)
def test_an_input_that_does_not_fit_is_refused_with_the_reason(words, said):
    declared = checked_recipe(recipe(ASK, inputs=INPUTS), "r").inputs
    with pytest.raises(ValueError, match=r"nput") as caught:
        checked_inputs(declared, parsed_inputs(declared, words))
    assert said in str(caught.value)


def test_a_library_has_the_shipped_recipes_and_those_of_its_folders(tmp_path):
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(recipe(ASK)))
    (tmp_path / "research.yml").write_text(yaml.safe_dump({**recipe(ASK), "name": "research"}))
    found = recipes_of(RecipesOptions(recipes=str(tmp_path)))
    assert sorted(found) == ["code_review", "research", "trial", "weekly_summary"]
    assert len(recipe_named(found, "research").steps) == 1
    assert recipe_named(found, "code-review").name == "code_review"
    with pytest.raises(ValueError, match="There is no recipe 'x'; there are: code_review"):
        recipe_named(found, "x")
    with pytest.raises(ValueError, match=r"own.yaml: there are two recipes 'trial'"):
        recipes_of(RecipesOptions(recipes=(str(tmp_path), str(tmp_path / "own.yaml"))))
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        recipes_of(RecipesOptions(recipes=str(tmp_path / "missing.yaml")))
