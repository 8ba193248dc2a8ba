"""A result that is too large for the log goes to a file or fails, and the model reads why."""

import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ScriptedTool, call, make_agent, results, returning, say, use
from loop_rows import MAX_CHARS, MAX_KEPT_CHARS

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock
from orchestrator_interactive.modules import tool_filesystem
from orchestrator_interactive.registries.tools import ResultCache

LARGE = "line\n" * (MAX_KEPT_CHARS // 5 + 1)


async def row_of(agent: Agent) -> dict[str, Any]:
    await agent.run()
    [row] = [row for row in await agent.history() if row["role"] == "tool"]
    return row


def saved_in(folder: Path) -> Path:
    (saved,) = (folder / "results").iterdir()
    return saved


def is_empty(folder: Path) -> bool:
    return not list(folder.iterdir())


async def with_files(result: Any, folder: Path, **config: Any) -> Agent:
    agent = await make_agent(call(use("give", "a/../b")), say("ok"), tools=[returning(result)])
    await tool_filesystem.mount(agent.coordinator, {"root": str(folder), **config})
    return agent


async def test_a_result_that_is_too_large_for_the_log_is_saved_and_its_row_names_the_file(tmp_path: Path) -> None:
    row = await row_of(await with_files(LARGE, tmp_path))
    saved = saved_in(tmp_path)
    assert saved.read_text() == LARGE
    assert saved.name.startswith("a----b-")
    assert row["content"].startswith("line\nline\n")
    note = f"The result has {len(LARGE):,} characters. The whole result is in the file results/{saved.name}:"
    assert note in row["content"]
    assert len(row["content"]) < 100_200
    assert row.get("metadata", {}) == {}, "the log does not keep it as well"


async def test_data_are_saved_as_json(tmp_path: Path) -> None:
    await row_of(await with_files({"found": [LARGE[:1_000_000]] * 6}, tmp_path))
    saved = saved_in(tmp_path)
    assert saved.read_text().startswith('{"found": ["line\\nline')


async def test_a_result_of_the_largest_size_that_the_log_takes_is_kept_whole(tmp_path: Path) -> None:
    row = await row_of(await with_files("x" * MAX_KEPT_CHARS, tmp_path))
    assert row["metadata"] == {"whole": "x" * MAX_KEPT_CHARS}
    assert is_empty(tmp_path)


async def test_without_a_workspace_a_large_result_is_truncated_and_says_so() -> None:
    row = await row_of(await make_agent(call(use("give", "a")), say("ok"), tools=[returning(LARGE)]))
    assert "Only this part is kept: there is no workspace for the rest." in row["content"]
    assert "whole" not in row.get("metadata", {})


async def test_with_a_full_workspace_a_large_result_is_truncated_and_says_why(tmp_path: Path) -> None:
    row = await row_of(await with_files(LARGE, tmp_path, quota_mb=1))
    assert (
        "the rest cannot be saved in the workspace. Nothing was written: the workspace may hold 1.0 MB"
        in row["content"]
    )
    assert is_empty(tmp_path)


@pytest.mark.parametrize(
    "huge",
    ["x" * (MAX_CHARS + 1), {"many": ["x" * 1_000_000] * 51}, ToolResult(content=[TextBlock(text="x" * 51_000_000)])],
    ids=["text", "data", "blocks"],
)
async def test_a_huge_result_is_a_failed_one_that_says_why(tmp_path: Path, huge: Any) -> None:
    agent = await with_files(huge, tmp_path)
    row = await row_of(agent)
    assert row["metadata"] == {"is_error": True}
    assert "its result is too large" in row["content"]
    assert "the limit is 50,000,000" in row["content"]
    assert is_empty(tmp_path)


async def test_the_modified_result_is_saved_and_not_the_original(tmp_path: Path) -> None:
    agent = await with_files(LARGE, tmp_path)
    agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": LARGE.replace("line", "hush")}))
    await row_of(agent)
    saved = saved_in(tmp_path)
    assert "line" not in saved.read_text()


@pytest.mark.parametrize("success", [True, False])
async def test_secrets_are_neither_saved_nor_shown(tmp_path: Path, *, success: bool) -> None:
    agent = await with_files(ToolResult(success=success, output=f"{LARGE}\nsecret-x"), tmp_path)

    def hide(text: str, *, known_only: bool = False) -> str:
        assert known_only or not success
        return text.replace("secret-x", "…")

    agent.coordinator.register_capability("secrets.filter", hide)
    row = await row_of(agent)
    assert saved_in(tmp_path).read_text() == f"{LARGE}\n…"
    assert "secret-x" not in str(row)


async def test_the_json_of_a_large_result_is_that_of_a_small_one(tmp_path: Path) -> None:
    data = {"found": [{"id": n, 3: "é\n"} for n in range(2_000)], "one": {"x": ["y" * 400_000]}, "none": []}
    row = await row_of(await with_files(data, tmp_path))
    assert row["metadata"]["whole"] == json.dumps(data, ensure_ascii=False)


async def test_the_text_of_a_long_exception_is_truncated(tmp_path: Path) -> None:
    async def fail(_given: Any) -> str:
        raise ValueError("some words " * 1_000_000)

    agent = await make_agent(call(use("fail", "b")), say("ok"), tools=[ScriptedTool("fail", fail)])
    await agent.session.execute("go")
    assert len((await results(agent))["b"]) < 2_100


async def test_images_that_are_too_large_for_the_log_are_replaced_by_a_sentence(tmp_path: Path) -> None:
    image = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "aGk=" * 1_000_000})
    row = await row_of(await with_files(ToolResult(content=[TextBlock(text="two"), image, image]), tmp_path))
    assert [block["type"] for block in row["content"]] == ["text", "text"]
    assert row["content"][1]["text"].startswith("[2 images are left out: they have 8,000,")


async def test_a_large_result_is_not_cached() -> None:
    kept, calls = ResultCache(cache_s=60, dedup_s=None, clock=lambda: 0.0), []

    async def run() -> ToolResult:
        calls.append(1)
        return ToolResult(output="x" * 200_000)

    assert [(await kept.result_of("key", run)).success for _ in range(2)] == [True, True]
    assert len(calls) == 2
