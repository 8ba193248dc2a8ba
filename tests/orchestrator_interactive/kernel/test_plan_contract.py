"""Module contracts: the Configuration sections. A mount plan, what reaches the modules, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator

SESSION = {"session": {"orchestrator": "my-orchestrator", "context": "my-context"}}


class Loader:
    """A module loader that knows every module, and writes down what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any] | None, Any]] = []

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Any:
        self.asked.append((module_id, config, profile_source))

        async def mount(_coordinator: ModuleCoordinator) -> None:
            return None

        return mount


async def asked_for(plan: dict[str, Any]) -> list[tuple[str, dict[str, Any] | None, Any]]:
    loader: Any = Loader()
    await AmplifierSession(plan, loader=loader).initialize()
    asked: list[tuple[str, dict[str, Any] | None, Any]] = loader.asked
    return asked


class TestConfiguration:
    async def test_orchestrator_and_context_are_named_in_the_session_section(self) -> None:
        assert await asked_for(SESSION) == [("my-orchestrator", {}, None), ("my-context", {}, None)]

    @pytest.mark.parametrize(
        "plan",
        [
            {"session": {"orchestrator": {"module": "o", "config": {"a": 1}}, "context": "c"}},
            {"session": {"orchestrator": "o", "context": "c"}, "orchestrator": {"config": {"a": 1}}},
        ],
        ids=["inside", "beside"],
    )
    async def test_their_configuration_stands_inside_or_beside_it(self, plan: dict[str, Any]) -> None:
        assert (await asked_for(plan))[0] == ("o", {"a": 1}, None)

    @pytest.mark.parametrize(
        "plan",
        [
            {"session": {"orchestrator": {"module": "o", "source": "git+x"}, "context": "c"}},
            {"session": {"orchestrator": "o", "orchestrator_source": "git+x", "context": "c"}},
        ],
        ids=["inside", "beside"],
    )
    async def test_so_does_their_source(self, plan: dict[str, Any]) -> None:
        assert (await asked_for(plan))[0] == ("o", {}, "git+x")

    async def test_context_config_can_be_passed_via_the_top_level(self) -> None:
        asked = await asked_for({**SESSION, "context": {"config": {"max_tokens": 1000}}})
        assert asked[1] == ("my-context", {"max_tokens": 1000}, None)

    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    async def test_module_source_and_config_reach_the_loader(self, section: str) -> None:
        entry = {
            "module": "my-module",
            "source": "git+https://github.com/org/my-module@main",
            "config": {"max_size": 1048576, "allowed_paths": ["/home/user/projects"]},
        }
        asked = await asked_for({**SESSION, section: [entry]})
        assert asked[2:] == [("my-module", entry["config"], entry["source"])]

    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    async def test_a_module_without_config_gets_an_empty_one(self, section: str) -> None:
        asked = await asked_for({**SESSION, section: [{"module": "a"}, {"module": "b", "config": None}, "c"]})
        assert asked[2:] == [("a", {}, None), ("b", {}, None), ("c", {}, None)]

    async def test_modules_are_mounted_in_the_order_of_the_plan(self) -> None:
        plan = {**SESSION, "hooks": ["h"], "tools": ["t1", "t2"], "providers": ["p"]}
        assert [module for module, *_ in await asked_for(plan)][2:] == ["p", "t1", "t2", "h"]

    @pytest.mark.parametrize("section", ["providers", "tools", "hooks", "orchestrator", "context"])
    async def test_an_empty_section_is_nothing(self, section: str) -> None:
        assert len(await asked_for({**SESSION, section: None})) == 2


class TestWrongPlans:
    @pytest.mark.parametrize("config", [None, [], "plan", 1], ids=str)
    def test_a_plan_that_is_no_mapping_is_named(self, config: Any) -> None:
        with pytest.raises(ValueError, match="config"):
            AmplifierSession(config)

    @pytest.mark.parametrize("config", [{}, {"session": None}, {"session": {}}, {"session": {"context": "c"}}], ids=str)
    def test_a_plan_without_orchestrator_is_named(self, config: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"session\.orchestrator"):
            AmplifierSession(config)

    def test_a_plan_without_context_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"session\.context"):
            AmplifierSession({"session": {"orchestrator": "o"}})

    @pytest.mark.parametrize("section", [[], "x", 1, [1]], ids=str)
    def test_a_session_section_that_is_no_mapping_is_named(self, section: Any) -> None:
        with pytest.raises(ValueError, match="session"):
            AmplifierSession({"session": section})

    @pytest.mark.parametrize("entries", [{"openai": {}}, "provider-demo", 1], ids=str)
    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    def test_a_section_that_is_no_list_is_named(self, section: str, entries: Any) -> None:
        with pytest.raises(ValueError, match=f"{section} must be a list"):
            AmplifierSession({**SESSION, section: entries})

    @pytest.mark.parametrize("entry", [{"config": {}}, {"module": ""}, {"module": 1}, 1, None, []], ids=str)
    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    def test_an_entry_without_a_module_is_named_with_its_place(self, section: str, entry: Any) -> None:
        with pytest.raises(ValueError, match=rf"{section}\[1\]"):
            AmplifierSession({**SESSION, section: ["fine", entry]})

    @pytest.mark.parametrize("config", [[1], "x", 1], ids=str)
    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    def test_a_config_that_is_no_mapping_is_named_with_its_place(self, section: str, config: Any) -> None:
        with pytest.raises(ValueError, match=rf"{section}\[0\]\.config"):
            AmplifierSession({**SESSION, section: [{"module": "m", "config": config}]})

    @pytest.mark.parametrize("wrong", [1, ["m"], {"config": {}}], ids=str)
    @pytest.mark.parametrize("point", ["orchestrator", "context"])
    def test_an_orchestrator_or_context_that_names_no_module_is_named(self, point: str, wrong: Any) -> None:
        with pytest.raises(ValueError, match=rf"session\.{point}"):
            AmplifierSession({"session": {**SESSION["session"], point: wrong}})

    @pytest.mark.parametrize("prompt", [None, 1, ["hello"]], ids=str)
    async def test_a_prompt_that_is_no_text_is_named(self, shipped_plan: dict[str, Any], prompt: Any) -> None:
        async with AmplifierSession(shipped_plan) as session:
            with pytest.raises(TypeError, match="prompt"):
                await session.execute(prompt)

    async def test_a_session_without_a_provider_says_what_is_missing_and_why(
        self, shipped_plan: dict[str, Any]
    ) -> None:
        async with AmplifierSession({**shipped_plan, "providers": [{"module": "provider-absent"}]}) as session:
            with pytest.raises(RuntimeError, match=r"providers.*provider-absent"):
                await session.execute("hello")
