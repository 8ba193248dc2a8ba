from __future__ import annotations

from pathlib import Path

import pytest

import orchestrator_interactive
from orchestrator_interactive.validation import validate

OURS = Path(orchestrator_interactive.__file__).parent
FOREIGN = Path(__file__).parent / "foreign"

RECIPE = {"name": "trial", "steps": [{"id": "look", "tool": "look"}]}
MODULES = {
    "loop-interactive": (OURS / "__init__.py", {}),
    "context-simple": (OURS / "modules" / "context_simple", {}),
    "context-stack": (OURS / "modules" / "context_stack", {}),
    "provider-anthropic": (OURS / "modules" / "provider_anthropic", {}),
    "provider-demo": (OURS / "modules" / "provider_demo", {"think_s": 0, "word_s": 0}),
    "provider-openai": (OURS / "modules" / "provider_openai", {"model": "m"}),
    "provider-recipe": (OURS / "recipes" / "provider.py", {"recipe": RECIPE}),
    "tool-recipes": (OURS / "recipes" / "tool.py", {}),
    "tool-agents": (OURS / "registries" / "tool_agents.py", {"agents": [{"id": "editor"}]}),
    "tool-filesystem": (OURS / "modules" / "tool_filesystem", {}),
    "tool-todo": (OURS / "modules" / "tool_todo.py", {}),
}


@pytest.mark.parametrize("module_id", MODULES)
def test_a_bundled_module_passes_without_warning(module_id):
    path, config = MODULES[module_id]
    report = validate(path, config=config)
    assert report.subject.name == module_id
    assert report.complete
    assert not (*report.of("failed"), *report.of("warning"))


@pytest.mark.parametrize(
    ("name", "module_type", "warnings"),
    [
        ("tool_upper", "tool", []),
        ("hooks_audit", "hook", []),
        ("provider_strict", "provider", []),
        ("context_foreign", "context", []),
        # It leaves ephemeral texts to its kernel, which does not keep them.
        ("loop_foreign", "orchestrator", ["an ephemeral injection is in the next request only"]),
    ],
)
def test_a_module_for_amplifier_core_passes(name, module_type, warnings):
    report = validate(FOREIGN / f"{name}.py")
    assert report.subject.module_type == module_type
    assert report.complete
    assert not report.of("failed")
    assert [finding.rule for finding in report.of("warning")] == warnings


@pytest.mark.parametrize(
    ("name", "change", "rule", "said"),
    [
        (
            "tool_upper",
            (
                'return ToolResult(success=False, error={"message": "text is required"})',
                "return ToolResult(success=True)",
            ),
            "an input without required properties fails",
            "succeeds, though its schema requires text.",
        ),
        (
            "hooks_audit",
            (
                'return HookResult(action="continue")',
                'return HookResult(action="modify")',
            ),
            "its results have the fields that their action needs",
            "wants to modify and gives no data.",
        ),
        (
            "provider_strict",
            (
                "raise InvalidRequestError(answer",
                "raise RuntimeError(answer",
            ),
            "a refusal of its service becomes an LLMError",
            "After HTTP status 400 it raises",
        ),
        (
            "provider_strict",
            (
                '"signature": block.signature',
                '"signed": True',
            ),
            "a request contains the tools and the whole conversation, with the signature of earlier thinking",
            "the signature of the thinking block is missing.",
        ),
        (
            "provider_strict",
            (
                'thinking["signature"]),',
                "None),",
            ),
            "complete() keeps the thinking of an answer, with its signature",
            "is not in the response.",
        ),
    ],
)
def test_a_violation_of_a_module_for_amplifier_core_is_found(checker, name, change, rule, said):
    path = checker.changed(name, change, folder=FOREIGN)
    report = validate(path)
    found = {finding.rule: finding.problem for finding in (*report.of("failed"), *report.of("warning"))}
    assert set(found) == {rule}
    assert said in found[rule]
