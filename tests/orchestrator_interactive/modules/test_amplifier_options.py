"""Configurations that were written for Amplifier's modules of the same names."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.modules import context_simple, context_stack, provider_anthropic, tool_filesystem

BUNDLE: dict[str, Any] = {
    "session": {
        "orchestrator": "loop-interactive",
        "context": {
            "module": "context-simple",
            "config": {"max_tokens": 300000, "compact_threshold": 0.8, "auto_compact": True, "protected_recent": 0.3},
        },
    },
    "providers": [
        {
            "module": "provider-anthropic",
            "config": {
                "api_key": "sk-ant-key",
                "default_model": "claude-haiku-4-5",
                "max_tokens": "4096",
                "temperature": 1.0,
                "raw": False,
                "priority": 1,
                "timeout": 600.0,
                "enable_prompt_caching": "true",
                "enable_1m_context": True,
                "fallback_on_overload": False,
                "min_retry_delay": 0.5,
                "retry_jitter": True,
            },
        }
    ],
    "tools": [
        {"module": "tool-filesystem", "config": {"allowed_write_paths": ["."], "require_approval": False}},
        {"module": "tool-todo", "config": {}},
    ],
}


async def test_every_module_of_a_bundle_is_mounted_and_options_without_effect_are_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs
) -> None:
    monkeypatch.chdir(tmp_path)
    async with AmplifierSession(BUNDLE) as session:
        get = session.coordinator.get
        assert set(get("tools")) > {"list_files", "move_file", "search_files", "todo"}
        defaults = get("providers", "anthropic").get_info().defaults
        assert defaults == {"model": "claude-haiku-4-5", "context_window": 1_000_000, "max_output_tokens": 4096}
    ignored = [(e["module"], e["options"]) for e in logs.named("module.options_without_effect")]
    assert ignored == [
        ("context-simple", ["auto_compact", "protected_recent"]),
        ("provider-anthropic", ["fallback_on_overload", "retry_jitter", "temperature"]),
        ("tool-filesystem", ["require_approval"]),
    ]


@pytest.mark.parametrize(
    ("module", "config", "sentence"),
    [
        (
            context_simple,
            {"compact_treshold": 0.8},
            "context-simple: there is no 'compact_treshold'; did you mean 'compaction_threshold'? There are: system_",
        ),
        (
            context_stack,
            {"compact_threshold": 8},
            "context-stack: 'compact_threshold': Input should be less than or equal",
        ),
        (provider_anthropic, {"temprature": 1}, "provider-anthropic: there is no 'temprature'; there are: api_key"),
        (provider_anthropic, {"effort": "ultra"}, "'effort': Input should be 'minimal', 'low'"),
        (
            provider_anthropic,
            {"model": "a", "default_model": "b"},
            "'model' and 'default_model' are names of the same option; give only one.",
        ),
        (
            tool_filesystem,
            {"allowed_write_path": ["."]},
            "tool-filesystem: there is no 'allowed_write_path'; did you mean 'allowed_write_paths'? There are",
        ),
        (tool_filesystem, {"allowed_write_paths": "."}, "'allowed_write_paths': Input should be a valid tuple"),
    ],
)
async def test_a_misspelt_option_is_refused_with_a_sentence(
    coordinator, module: Any, config: Any, sentence: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the sentence is compared below
        await module.mount(coordinator, config)
    assert sentence in str(refused.value)
