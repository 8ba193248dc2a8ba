"""Merging two mount plans, module by module, without sharing anything between them."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.plan import MountPlan, merge_configs

SESSION = {"orchestrator": "o", "context": "c"}


def m(**config: Any) -> dict[str, Any]:
    return {"module": "m", "config": config}


@pytest.mark.parametrize(
    ("base", "overlay", "expected"),
    [
        ([m(a=1, b={"x": 1})], [m(b={"y": 2})], [m(a=1, b={"x": 1, "y": 2})]),
        ([{**m(a=1), "source": "here"}], ["m"], [{**m(a=1), "source": "here"}]),
        (["m"], [m(a=1)], [m(a=1)]),
        (["a", "b"], ["c", "a"], [{"module": name} for name in "abc"]),
        ([m(name="one"), m(name="two")], [m(x=1), m(x=2), m(x=3)], [m(name="one", x=1), m(name="two", x=2), m(x=3)]),
        ([m(name="one"), m(name="two")], ["n"], [m(name="one"), m(name="two"), {"module": "n"}]),
        ([m(allowed_paths=["/"])], [m(allowed_paths=["/safe"])], [m(allowed_paths=["/safe"])]),
    ],
    ids=[
        "configs are merged",
        "a module that is only named keeps its entry",
        "a module that was only named gets a config",
        "other modules are added at the end",
        "the second entry of a module is merged with the second one",
        "two entries of a module stay two",
        "lists in a config are replaced",
    ],
)
@pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
def test_the_modules_of_a_section_are_merged_by_name(section: str, base: Any, overlay: Any, expected: Any) -> None:
    assert merge_configs({section: base}, {section: overlay})[section] == expected


@pytest.mark.parametrize("nothing", [[], None])
def test_an_empty_section_removes_every_module(nothing: Any) -> None:
    plan = {"session": SESSION, "tools": ["a", "b"]}
    assert MountPlan.from_config(merge_configs(plan, {"tools": nothing})).optional == ()


@pytest.mark.parametrize("point", ["orchestrator", "context"])
@pytest.mark.parametrize(
    "base",
    [
        {"session": {"orchestrator": {"module": "o", "source": "there", "config": {"a": 1}}}},
        {"session": {"context": {"module": "c", "source": "there", "config": {"a": 1}}}},
        {"session": {"orchestrator_source": "there", "context_source": "there"}},
        {"orchestrator": {"config": {"a": 1}}, "context": {"config": {"a": 1}}},
    ],
    ids=["orchestrator inside", "context inside", "sources beside", "configs beside"],
)
@pytest.mark.parametrize("another", ["another", {"module": "another"}], ids=["name", "mapping"])
def test_a_replacement_does_not_inherit_the_options_of_the_module(
    point: str, base: dict[str, Any], another: Any
) -> None:
    base = {**base, "session": {**SESSION, **base.get("session", {})}}
    before, after = (
        MountPlan.from_config(base),
        MountPlan.from_config(merge_configs(base, {"session": {point: another}})),
    )
    [spec] = [spec for spec in after.required if spec.point == point]
    assert (spec.module, spec.source, spec.config) == ("another", None, {})
    assert [spec for spec in after.required if spec.point != point] == [
        spec for spec in before.required if spec.point != point
    ]


def test_the_same_module_keeps_the_options_beside_it() -> None:
    base = {"session": {**SESSION, "orchestrator_source": "there"}, "orchestrator": {"config": {"a": 1}}}
    overlay = {"session": {"orchestrator": "o"}, "orchestrator": {"config": {"b": 2}}}
    spec = MountPlan.from_config(merge_configs(base, overlay)).required[0]
    assert (spec.source, spec.config) == ("there", {"a": 1, "b": 2})


CONFIGS = st.dictionaries(st.sampled_from("ab"), st.integers() | st.lists(st.integers(), max_size=2), max_size=2)
ENTRIES = st.lists(
    st.sampled_from("mn") | st.fixed_dictionaries({"module": st.sampled_from("mn"), "config": CONFIGS}), max_size=3
)
PLANS = st.fixed_dictionaries({}, optional={"providers": ENTRIES, "tools": ENTRIES, "mine": CONFIGS})


@given(PLANS, PLANS)
def test_neither_plan_is_changed_or_shared(base: dict[str, Any], overlay: dict[str, Any]) -> None:
    given_base, given_overlay = deepcopy(base), deepcopy(overlay)
    _spoil(merge_configs(base, overlay))
    assert (base, overlay) == (given_base, given_overlay)


@given(PLANS, PLANS)
def test_merging_the_same_plan_again_changes_nothing(base: dict[str, Any], overlay: dict[str, Any]) -> None:
    once = merge_configs(base, overlay)
    assert _modules(merge_configs(once, overlay)) == _modules(once)
    assert merge_configs(once, overlay).get("mine") == once.get("mine")


@given(PLANS)
def test_merging_an_empty_plan_changes_nothing(base: dict[str, Any]) -> None:
    assert merge_configs(base, {}) == base


def _modules(plan: dict[str, Any]) -> tuple[Any, ...]:
    return MountPlan.from_config({"session": SESSION, **plan}).optional


def _spoil(value: Any) -> None:
    """Change everything in it that can be changed."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _spoil(inner)
    if isinstance(value, dict | list):
        value.clear()


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf"), -1, "5", True, [1]], ids=repr)
def test_an_invalid_hook_timeout_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ValueError, match="hook_timeout_s"):
        MountPlan.from_config({"session": {**SESSION, "hook_timeout_s": wrong}})
