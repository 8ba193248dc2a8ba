"""Module contracts: the Configuration sections. A mount plan, the configuration of its modules, and its errors."""

from typing import Any

import pytest

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator

SESSION = {"session": {"orchestrator": "my-orchestrator", "context": "my-context"}}
SECTIONS = ["providers", "tools", "hooks"]
Loaded = tuple[str, dict[str, Any] | None, Any]


class Loader:
    """A module loader that finds every module and records what it loads."""

    def __init__(self) -> None:
        self.loaded: list[Loaded] = []

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Any:
        self.loaded.append((module_id, config, profile_source))

        async def mount(_coordinator: ModuleCoordinator) -> None:
            return None

        return mount


async def loaded_by(plan: dict[str, Any]) -> list[Loaded]:
    loader: Any = Loader()
    await AmplifierSession(plan, loader=loader).initialize()
    loaded: list[Loaded] = loader.loaded
    return loaded


class TestConfiguration:
    @pytest.mark.parametrize(
        ("plan", "loaded"),
        [
            (SESSION, [("my-orchestrator", {}, None), ("my-context", {}, None)]),
            (
                {"session": {"orchestrator": {"module": "o", "config": {"a": 1}, "source": "git+x"}, "context": "c"}},
                [("o", {"a": 1}, "git+x"), ("c", {}, None)],
            ),
            (
                {
                    "session": {"orchestrator": "o", "orchestrator_source": "git+x", "context": "c"},
                    "orchestrator": {"config": {"a": 1}},
                    "context": {"config": {"max_tokens": 1000}},
                },
                [("o", {"a": 1}, "git+x"), ("c", {"max_tokens": 1000}, None)],
            ),
        ],
        ids=["names only", "inside", "beside"],
    )
    async def test_the_session_section_names_orchestrator_and_context(self, plan, loaded) -> None:
        assert await loaded_by(plan) == loaded

    @pytest.mark.parametrize("section", SECTIONS)
    async def test_module_source_and_config_reach_the_loader(self, section: str) -> None:
        entry = {
            "module": "my-module",
            "source": "git+https://github.com/org/my-module@main",
            "config": {"max_size": 1048576, "allowed_paths": ["/home/user/projects"]},
        }
        plan = {**SESSION, section: [entry, {"module": "a"}, {"module": "b", "config": None}, "c"]}
        loaded = [("my-module", entry["config"], entry["source"]), *((name, {}, None) for name in ("a", "b", "c"))]
        assert (await loaded_by(plan))[2:] == loaded

    async def test_modules_are_mounted_in_the_order_of_the_plan(self) -> None:
        plan = {**SESSION, "hooks": ["h"], "tools": ["t1", "t2"], "providers": ["p"]}
        assert [module for module, *_ in await loaded_by(plan)][2:] == ["p", "t1", "t2", "h"]

    @pytest.mark.parametrize("section", [*SECTIONS, "orchestrator", "context"])
    async def test_a_section_may_be_empty(self, section: str) -> None:
        assert len(await loaded_by({**SESSION, section: None})) == 2


class TestWrongPlans:
    @pytest.mark.parametrize(
        ("plan", "said"),
        [
            *((plan, "config") for plan in (None, [], "plan", 1)),
            *(({"session": section}, "session") for section in ([], "x", 1, [1])),
            *((plan, r"session\.orchestrator") for plan in ({}, {"session": None}, {"session": {"context": "c"}})),
            ({"session": {"orchestrator": "o"}}, r"session\.context"),
            *(
                ({"session": {**SESSION["session"], point: wrong}}, rf"session\.{point}")
                for point in ("orchestrator", "context")
                for wrong in (1, ["m"], {"config": {}})
            ),
        ],
        ids=str,
    )
    def test_the_error_names_the_wrong_part_of_the_session_section(self, plan: Any, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            AmplifierSession(plan)

    @pytest.mark.parametrize(
        ("entries", "said"),
        [
            *((wrong, " must be a list") for wrong in ({"openai": {}}, "provider-demo", 1)),
            *((["fine", wrong], r"\[1\]") for wrong in ({"config": {}}, {"module": ""}, {"module": 1}, 1, None, [])),
            *(([{"module": "m", "config": wrong}], r"\[0\]\.config") for wrong in ([1], "x", 1)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("section", SECTIONS)
    def test_the_error_names_the_wrong_entry_of_a_section(self, section: str, entries: Any, said: str) -> None:
        with pytest.raises(ValueError, match=section + said):
            AmplifierSession({**SESSION, section: entries})

    @pytest.mark.parametrize("prompt", [None, 1, ["hello"]], ids=str)
    async def test_a_prompt_must_be_text(self, shipped_plan: dict[str, Any], prompt: Any) -> None:
        async with AmplifierSession(shipped_plan) as session:
            with pytest.raises(TypeError, match="prompt"):
                await session.execute(prompt)
