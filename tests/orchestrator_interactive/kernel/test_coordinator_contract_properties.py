"""Coordinator API: the coordinator itself, its mount points, and its properties."""

from __future__ import annotations

import pytest

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator, ModuleLoader

PLAN = {"session": {"orchestrator": "o", "context": "c"}}


class TestModuleCoordinator:
    def test_it_is_made_with_a_session_and_two_systems(self) -> None:
        session, approvals, display = AmplifierSession(PLAN), object(), object()
        coordinator = ModuleCoordinator(session=session, approval_system=approvals, display_system=display)
        assert coordinator.session is session
        assert coordinator.approval_system is approvals
        assert coordinator.display_system is display

    def test_the_systems_are_optional(self) -> None:
        coordinator = ModuleCoordinator(session=AmplifierSession(PLAN))
        assert coordinator.approval_system is None
        assert coordinator.display_system is None

    def test_the_session_is_not_optional(self) -> None:
        with pytest.raises(TypeError, match="session"):
            ModuleCoordinator()

    @pytest.mark.parametrize(
        "names",
        [
            ("mount", "unmount", "get"),
            ("session_id", "parent_id", "config", "loader"),
            ("register_capability", "get_capability", "register_contributor", "collect_contributions"),
            ("process_hook_result",),
            ("register_cleanup", "cleanup", "injection_budget_per_turn", "injection_size_limit", "reset_turn"),
        ],
        ids=["module management", "infrastructure", "inter-module", "hooks", "resources"],
    )
    def test_every_core_responsibility_has_its_methods(
        self, coordinator: ModuleCoordinator, names: tuple[str, ...]
    ) -> None:
        assert [name for name in names if not hasattr(coordinator, name)] == []


class TestMountPoints:
    @pytest.mark.parametrize("point", ["orchestrator", "context", "module-source-resolver"])
    def test_a_single_mount_point_begins_empty(self, coordinator: ModuleCoordinator, point: str) -> None:
        assert coordinator.get(point) is None

    @pytest.mark.parametrize("point", ["providers", "tools", "agents"])
    def test_a_multi_mount_point_begins_without_modules(self, coordinator: ModuleCoordinator, point: str) -> None:
        assert coordinator.get(point) == {}

    def test_hooks_is_the_built_in_registry(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.get("hooks") is coordinator.hooks


class TestProperties:
    def test_session_is_the_parent_session(self) -> None:
        session = AmplifierSession(PLAN)
        assert session.coordinator.session is session

    def test_session_id_is_the_sessions(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.session_id == "here"

    def test_every_session_has_an_id_of_its_own(self) -> None:
        ids = {AmplifierSession(PLAN).coordinator.session_id for _ in range(3)}
        assert len(ids) == 3
        assert all(isinstance(session_id, str) and session_id for session_id in ids)

    def test_parent_id_is_that_of_the_parent(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.parent_id == "above"

    def test_parent_id_of_a_first_session_is_none(self) -> None:
        assert AmplifierSession(PLAN).coordinator.parent_id is None

    def test_config_is_the_mount_plan(self) -> None:
        assert AmplifierSession(PLAN).coordinator.config == PLAN

    async def test_loader_loads_modules(self, coordinator: ModuleCoordinator) -> None:
        assert isinstance(coordinator.loader, ModuleLoader)

    def test_loader_is_the_one_that_the_session_was_given(self) -> None:
        loader = ModuleLoader()
        assert AmplifierSession(PLAN, loader=loader).coordinator.loader is loader

    @pytest.mark.parametrize("name", ["injection_budget_per_turn", "injection_size_limit"])
    def test_a_limit_that_is_not_set_is_none(self, coordinator: ModuleCoordinator, name: str) -> None:
        assert getattr(coordinator, name) is None

    @pytest.mark.parametrize("name", ["session", "session_id", "parent_id", "config"])
    def test_the_infrastructure_is_read_only(self, coordinator: ModuleCoordinator, name: str) -> None:
        with pytest.raises(AttributeError):
            setattr(coordinator, name, "another")


class TestPropertiesUsageExamples:
    def test_access_session_infrastructure(self, coordinator: ModuleCoordinator) -> None:
        session_id = coordinator.session_id
        parent_session = coordinator.session
        assert parent_session.session_id == session_id

    def test_get_configuration_for_module_setup(self, coordinator: ModuleCoordinator) -> None:
        config = coordinator.config
        provider_config = config.get("providers", {}).get("openai", {})
        assert provider_config == {}

    @pytest.mark.parametrize(("content", "too_large"), [("é" * 5, False), ("é" * 6, True)])
    def test_check_resource_limits_before_injection(self, make_coordinator, content: str, *, too_large: bool) -> None:
        """The text says bytes: the module must count what the coordinator counts."""
        coordinator = make_coordinator(injection_size_limit=10)
        assert coordinator.injection_budget_per_turn is None
        size_limit = coordinator.injection_size_limit
        assert (len(content.encode()) > size_limit) is too_large

    async def test_load_modules_dynamically(self, coordinator: ModuleCoordinator, tmp_path) -> None:
        loader = coordinator.loader
        module_mount = await loader.load("tool-filesystem", {"root": str(tmp_path)})
        await module_mount(coordinator)
        assert "read_file" in coordinator.get("tools")


class TestPolicyConfiguration:
    def test_the_limits_are_read_from_the_session_section(self) -> None:
        config = {
            "session": {
                "orchestrator": "o",
                "context": "c",
                "injection_budget_per_turn": 1000,
                "injection_size_limit": 50000,
            }
        }
        coordinator = AmplifierSession(config).coordinator
        assert coordinator.injection_budget_per_turn == 1000
        assert coordinator.injection_size_limit == 50000

    @pytest.mark.parametrize("name", ["injection_budget_per_turn", "injection_size_limit"])
    def test_a_limit_may_say_none(self, make_coordinator, name: str) -> None:
        assert getattr(make_coordinator(**{name: None}), name) is None

    @pytest.mark.parametrize("wrong", ["50", -1, [], True])
    @pytest.mark.parametrize("name", ["injection_budget_per_turn", "injection_size_limit"])
    def test_a_limit_that_is_no_number_is_refused_by_name(self, make_coordinator, name: str, wrong: object) -> None:
        with pytest.raises(ValueError, match=f"session.{name}"):
            make_coordinator(**{name: wrong})
