from __future__ import annotations

import pytest

from orchestrator_interactive.validation import rendered

_MOUNT = "async def mount(coordinator, config):\n"
_RETURN = "    return clean_up\n"
_NEEDS_FOLDER = (_MOUNT, _MOUNT + "    if not config.get('folder'):\n        return None\n")
_ANNOUNCE_UNKNOWN = """        if call.name not in self.tools:
            about = {"tool_name": call.name, "tool_input": call.arguments, "tool_call_id": call.id}
            await self.hooks.emit("tool:pre", about)
"""
_CONTRIBUTE = """    coordinator.register_contributor("observability.events", "guard", lambda: ["guard:asked"])
    handlers = [
"""
_REGISTER = "    coordinator.hooks.register('tool:pre', print, priority=50, name='words')\n"


def rules_of(findings) -> set[str]:
    return {finding.key for finding in findings}


async def test_a_structure_problem_leaves_the_behaviour_unchecked(checker):
    report = await checker.report(checker.changed("tool_words", ("async def mount", "async def install")))
    assert [(f.outcome, f.rule) for f in report.findings if f.part == "behaviour"] == [("not checked", "its behaviour")]
    assert not report.passed


@pytest.mark.parametrize(
    ("config", "fix"),
    [({}, "Pass its configuration with --config."), ({"other": 1}, "Pass the missing options with --config.")],
)
async def test_a_module_that_mounts_nothing_without_its_configuration_is_not_validated(checker, config, fix):
    report = await checker.report(checker.changed("tool_words", _NEEDS_FOLDER), config=config)
    assert not report.complete
    first, second = report.of("not checked")
    assert first.problem == "mount() returned None and mounted nothing, as modules do that lack configuration."
    assert first.fix == fix
    assert second.problem == "It has mounted nothing that can be checked."


async def test_the_configuration_is_passed_to_mount(checker):
    report = await checker.report(checker.changed("tool_words", _NEEDS_FOLDER), config={"folder": "here"})
    assert report.complete
    assert report.passed


@pytest.mark.parametrize(
    ("example", "module_type", "requested", "mounts", "by"),
    [
        ("tool_words", "tool", "provider", "mounts a tool", "it mounts at 'tools'"),
        ("hooks_guard", "hook", "tool", "registers handlers", "it registers handlers"),
        ("provider_web", "provider", "tool", "mounts a provider", "it mounts at 'providers'"),
        ("loop_plain", "orchestrator", "context", "mounts an orchestrator", "it mounts at 'orchestrator'"),
        ("context_short", "context", "hook", "mounts a context", "it mounts at 'context'"),
    ],
)
async def test_the_type_is_detected_by_what_is_mounted(checker, example, module_type, requested, mounts, by):  # noqa: PLR0917
    path = checker.changed(example)
    path = path.rename(path.with_name("something.py"))
    report = await checker.report(path)
    assert (report.subject.module_type, report.subject.detected_by) == (module_type, f"detected: {by}")
    assert report.passed
    [finding] = (await checker.report(path, requested)).of("failed")
    assert finding.problem == f"It {mounts}. If that is intended, validate it without --type."


@pytest.mark.parametrize(
    ("name", "declared", "module_type"),
    [
        ("tool_words", "", "tool"),
        ("hooks_words", "", "hook"),
        ("tool_words", '__amplifier_module_type__ = "hook"', "hook"),
    ],
)
async def test_the_declared_type_or_the_name_decides_between_several_types(checker, name, declared, module_type):
    path = checker.changed(
        "tool_words", (_RETURN, _REGISTER + _RETURN), ("class CountWords", f"{declared}\n\nclass CountWords")
    )
    report = await checker.report(path.rename(path.with_name(f"{name}.py")))
    assert report.subject.module_type == module_type


@pytest.fixture
def tool_with_hook(checker):
    """Return a tool whose module also registers a handler, which returns a dictionary."""
    return checker.changed(
        "tool_words",
        ("    tool = CountWords()\n", "    tool = CountWords()\n" + _REGISTER.replace("print", "look")),
        ("    def clean_up():\n", "    def clean_up():\n        coordinator.hooks.unregister('words')\n"),
        (_MOUNT, "async def look(event, data):\n    return {}\n\n\n" + _MOUNT),
    )


async def test_a_module_of_several_types_is_checked_as_each(checker, tool_with_hook):
    report = await checker.report(tool_with_hook)
    [failed] = report.of("failed")
    assert (failed.key, failed.module_type) == ("returns_a_result", "hook")
    lines = rendered(report).splitlines()
    assert lines[1:3] == [
        "Type: tool (detected: it mounts at 'tools').",
        "Also: hook (detected: it registers handlers).",
    ]
    titles = [line for line in lines if line.startswith(("Structure", "Behaviour"))]
    assert titles == ["Structure", "Behaviour as a tool", "Behaviour as a hook"]
    assert any("(Hook Contract: HookResult Actions)" in line for line in lines)


@pytest.mark.parametrize(
    ("requested", "also"), [("tool", "It also registers handlers."), ("hook", "It also mounts a tool.")]
)
async def test_with_a_requested_type_the_others_are_not_checked(checker, tool_with_hook, requested, also):
    report = await checker.report(tool_with_hook, requested)
    [left] = [finding for finding in report.of("not checked") if finding.rule.startswith("its behaviour")]
    assert (left.problem, left.fix) == (also, "Validate without --type.")
    assert report.complete
    assert report.passed == (requested == "tool")


async def test_a_type_that_lacks_members_does_not_keep_the_others_from_being_checked(checker, tool_with_hook):
    tool_with_hook.write_text(tool_with_hook.read_text().replace("    async def execute(", "    async def work("))
    report = await checker.report(tool_with_hook)
    assert rules_of(report.of("failed")) == {"implements_protocol", "returns_a_result"}


async def test_a_project_must_declare_its_module(checker):
    path = checker.changed("tool_words")
    assert "is_declared" not in rules_of((await checker.report(path)).findings)
    (path.parent / "pyproject.toml").write_text("[project]\nname = 'words'\n")
    [finding] = (await checker.report(path)).of("failed")
    assert finding.key == "is_declared"
    assert finding.problem.endswith("has no entry point in the group 'amplifier.modules' that leads to tool_words.")


@pytest.mark.parametrize(
    ("example", "changes"),
    [
        (
            "hooks_guard",  # registers its handlers when the session is ready, and its clean-up with the coordinator
            [
                ("async def mount(coordinator, config):", "async def on_session_ready(coordinator):\n    config = {}"),
                (
                    "    return unregister\n",
                    "    coordinator.register_cleanup(unregister)\n\n\nasync def mount(c, config): ...\n",
                ),
            ],
        ),
        (
            "hooks_guard",  # listens to an event that its module contributes
            [('"tool:pre", guard', '"guard:asked", guard'), ("    handlers = [\n", _CONTRIBUTE)],
        ),
        (
            "loop_plain",  # mounts by the alias of the contracts
            [('mount("orchestrator", orchestrator)', 'mount("session", orchestrator, name="orchestrator")')],
        ),
        (
            "loop_plain",  # emits tool:pre for an unknown tool, and nothing after it
            [("        if call.name not in self.tools:\n", _ANNOUNCE_UNKNOWN)],
        ),
        ("tool_words", [("    def get_schema", "    @property\n    def input_schema")]),
        (
            "context_short",  # has a system prompt of its own
            [("        self.messages = []", '        self.messages = [{"role": "system", "content": "Be kind."}]')],
        ),
        ("provider_web", [("await asyncio.sleep(0)", 'assert config["api_key"] == "sk-validation"')]),
    ],
)
async def test_other_forms_that_the_contracts_allow_pass_without_warning(checker, example, changes):
    report = await checker.report(checker.changed(example, *changes))
    assert {finding.outcome for finding in report.findings} == {"passed"}


async def test_after_two_runs_that_do_not_end_the_others_are_skipped(checker):
    start = '            await hooks.emit("execution:start", {"prompt": prompt})\n'
    path = checker.changed("loop_plain", (start, start + "            await asyncio.Event().wait()\n"))
    report = await checker.report(path, limit_s=0.2)
    [finding] = report.of("failed")
    assert finding.problem == (
        "The run with a plain answer does not end within 0.2 seconds. "
        "The run with two rounds of tools does not end within 0.2 seconds."
    )
    assert "returns_the_text" in rules_of(report.of("not checked"))


async def test_events_of_compaction_are_not_checked_without_a_compaction(checker):
    report = await checker.report(checker.changed("context_short", (" <= budget:", " <= budget * 100:")))
    [finding] = [finding for finding in report.findings if finding.key == "emits_compaction_events"]
    assert (finding.outcome, finding.problem) == ("not checked", "It has compacted nothing.")
