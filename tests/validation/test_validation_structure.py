from __future__ import annotations

import pytest
from example_modules import Mutant

from orchestrator_interactive.validation import protocol_check, structure

_MOUNT = "async def mount(coordinator, config):\n"
_READY = "async def on_session_ready(coordinator):\n"
_CLEAN_UP = "    def clean_up():\n"

BROKEN = {
    "a module that raises": Mutant(
        '"""A tool that counts words."""\n',
        "import nowhere_to_be_found\n",
        (structure.importable,),
        "Importing tool_words fails: ModuleNotFoundError: No module named 'nowhere_to_be_found' (tool_words.py",
    ),
    "a module that is no Python": Mutant(
        "class CountWords:", "class:", (structure.importable,), "SyntaxError: invalid"
    ),
    "a module that exits": Mutant(
        "class CountWords:",
        "raise SystemExit(3)\nclass CountWords:",
        (structure.importable,),
        "SystemExit: 3 (tool_words.py",
    ),
    "no mount": Mutant(
        _MOUNT, "async def install(c, d):\n", (structure.has_mount,), "no function mount() in tool_words.py."
    ),
    "a mount that is no function": Mutant(
        _MOUNT,
        "mount = 7\n\n\nasync def install(coordinator, config):\n",
        (structure.has_mount,),
        "no function mount()",
    ),
    "a plain mount": Mutant(
        _MOUNT + "    tool = CountWords()\n    await coordinator",
        "def mount(coordinator, config):\n    tool = CountWords()\n    coordinator",
        (structure.mount_is_async,),
        "It is a plain function.",
    ),
    "a mount without config": Mutant(
        _MOUNT,
        "async def mount(coordinator):\n",
        (structure.mount_takes_both,),
        "It cannot be called with (coordinator, config): too many positional arguments.",
    ),
    "a plain on_session_ready": Mutant(
        _READY, "def on_session_ready(coordinator):\n", (structure.ready_is_async,), "It is no async function."
    ),
    "an on_session_ready without coordinator": Mutant(
        _READY,
        "async def on_session_ready():\n    coordinator = None\n",
        (structure.ready_is_async,),
        "It cannot be called with (coordinator): too many positional arguments.",
    ),
    "an on_session_ready that raises": Mutant(
        _READY,
        _READY + "    coordinator.get('context').messages\n",
        (structure.ready_runs,),
        "It raises AttributeError: 'NoneType' object has no attribute 'messages' (tool_words.py, line 26).",
    ),
    "a mount that raises": Mutant(
        _MOUNT,
        _MOUNT + "    config['folder']\n",
        (structure.mounts,),
        "It raises KeyError: 'folder' (tool_words.py, line 30).",
    ),
    "a mount that is cancelled": Mutant(
        _MOUNT,
        _MOUNT + "    import asyncio\n    raise asyncio.CancelledError\n",
        (structure.mounts,),
        "mount() ends with a CancelledError although it was not cancelled.",
    ),
    "a mount that waits for ever": Mutant(
        _MOUNT,
        _MOUNT + "    import asyncio\n    await asyncio.Event().wait()\n",
        (structure.mounts,),
        "mount() does not end within 0.2 seconds.",
        limit_s=0.2,
    ),
    "a clean-up that raises": Mutant(
        _CLEAN_UP,
        _CLEAN_UP + "        tool.close()\n",
        (structure.cleans_up,),
        "'CountWords' object has no attribute 'close'",
    ),
    "a clean-up that wants something": Mutant(
        _CLEAN_UP,
        "    def clean_up(session):\n",
        (structure.cleans_up,),
        "missing 1 required positional argument: 'session'",
    ),
    "a module that can be mounted once": Mutant(
        _MOUNT,
        "mounted = []\n\n\n" + _MOUNT + "    if mounted:\n        raise RuntimeError('again')\n"
        "    mounted.append(1)\n    coordinator.register_cleanup(mounted.clear)\n",
        (structure.mounts_twice,),
        "It raises RuntimeError: again",
    ),
    "a module that mounts something else the next time": Mutant(
        "name=tool.name)",
        "name=f'words_{id(coordinator)}')",
        (structure.mounts_twice,),
        "The first session gets the tool 'words_",
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_module_that_breaks_a_rule_is_told_so(check_broken, broken):
    await check_broken("tool_words", broken)


def test_every_rule_for_modules_has_been_seen_broken():
    every = {*structure.BEFORE_MOUNTING, *structure.AFTER_MOUNTING}
    every |= {structure.importable, structure.mounts, structure.ready_is_async, structure.ready_runs}
    assert {broken.rules[0] for broken in BROKEN.values()} == every


async def test_two_sessions_must_not_get_the_same_context(examiner):
    path = examiner.changed(
        "context_short",
        ("async def mount", "only = ShortContext(None)\n\n\nasync def mount"),
        (
            "    context = ShortContext(coordinator.hooks)\n",
            "    context = only\n    context.hooks = coordinator.hooks\n",
        ),
    )
    [finding, *_] = (await examiner.examine(path)).of("failed")
    assert finding.check == structure.mounts_twice.check
    assert finding.problem == "Both sessions get the same context."


async def test_what_is_wrong_before_leaves_the_behaviour_unchecked(examiner):
    report = await examiner.examine(examiner.changed("tool_words", ("async def mount", "async def install")))
    assert [finding.outcome for finding in report.part("behaviour")] == ["not checked"]
    assert not report.passed


async def test_a_module_that_mounts_nothing_is_not_checked_any_further(examiner):
    path = examiner.changed("tool_words", (_MOUNT, _MOUNT + "    if not config.get('folder'):\n        return None\n"))
    report = await examiner.examine(path)
    assert not report.complete
    assert [finding.problem for finding in report.of("not checked")] == [
        "mount() returned None and mounted nothing, as modules do that lack configuration.",
        "It has mounted nothing that can be checked.",
    ]
    assert report.of("not checked")[0].fix == "Pass its configuration with --config."


async def test_a_configuration_reaches_mount(examiner):
    path = examiner.changed("tool_words", (_MOUNT, _MOUNT + "    if not config.get('folder'):\n        return None\n"))
    report = await examiner.examine(path, config={"folder": "here"})
    assert report.complete
    assert report.passed


async def test_a_configuration_that_is_not_enough_is_told(examiner):
    path = examiner.changed("tool_words", (_MOUNT, _MOUNT + "    if not config.get('folder'):\n        return None\n"))
    report = await examiner.examine(path, config={"other": 1})
    assert report.of("not checked")[0].fix == "Pass the missing options with --config."


@pytest.mark.parametrize(
    ("example", "asked", "mounts"),
    [
        ("tool_words", "provider", "mounts a tool"),
        ("hooks_guard", "tool", "registers handlers"),
        ("provider_web", "tool", "mounts a provider"),
        ("loop_plain", "context", "mounts an orchestrator"),
        ("context_short", "hook", "mounts a context"),
    ],
)
async def test_a_module_of_another_type_than_asked_for_is_told_so(examiner, example, asked, mounts):
    report = await examiner.examine(examiner.changed(example), asked)
    [finding] = report.of("failed")
    assert finding.problem == f"It {mounts}. If that is intended, validate it without --type."


@pytest.mark.parametrize(
    ("example", "module_type", "by"),
    [
        ("tool_words", "tool", "detected: it mounts at 'tools'"),
        ("hooks_guard", "hook", "detected: it registers handlers"),
        ("provider_web", "provider", "detected: it mounts at 'providers'"),
        ("loop_plain", "orchestrator", "detected: it mounts at 'orchestrator'"),
        ("context_short", "context", "detected: it mounts at 'context'"),
    ],
)
async def test_the_type_is_found_out_whatever_the_module_is_called(examiner, example, module_type, by):
    renamed = examiner.changed(example)
    report = await examiner.examine(renamed.rename(renamed.with_name("something.py")))
    assert (report.subject.module_type, report.subject.detected_by) == (module_type, by)
    assert report.passed


async def test_a_module_that_mounts_two_things_is_what_it_is_called(examiner):
    register = "    coordinator.hooks.register('tool:pre', ready, priority=50, name='words')\n    return None\n"
    handler = (
        "async def ready(event, data):\n    from orchestrator_interactive.kernel.contracts.models import HookResult\n\n"
        "    return HookResult()\n\n\n"
    )
    path = examiner.changed("tool_words", (_MOUNT, handler + _MOUNT), ("    return clean_up\n", register))
    assert (await examiner.examine(path)).subject.module_type == "tool"


async def test_a_module_that_mounts_two_things_is_what_it_is_called_even_if_that_is_the_lesser(examiner):
    register = "    coordinator.hooks.register('tool:pre', print, priority=50, name='words')\n    return clean_up\n"
    path = examiner.changed("tool_words", ("    return clean_up\n", register))
    report = await examiner.examine(path.rename(path.with_name("hooks_words.py")))
    assert report.subject.module_type == "hook"


@pytest.mark.parametrize(
    ("example", "change", "problem"),
    [
        ("tool_words", ('description = "Counts the words of a text."', ""), "There is no description."),
        ("tool_words", ('"Counts the words of a text."', '" "'), "Its description is ' ', not a text."),
        ("tool_words", ("    async def execute", "    def execute"), "Its execute() is a plain function."),
        (
            "tool_words",
            ("execute(self, input)", "execute(self)"),
            "Its execute() cannot be called with (input): too many positional arguments.",
        ),
        (
            "provider_echo",
            (", **kwargs):", "):"),
            "cannot be called with (request, stream=…): got an unexpected keyword",
        ),
        ("provider_echo", ("    async def list_models", "    async def models"), "There is no list_models()."),
        ("provider_echo", ("    def get_info", "    async def get_info"), "Its get_info() is async."),
        (
            "provider_echo",
            ("    def parse_tool_calls", "    async def parse_tool_calls"),
            "Its parse_tool_calls() is async.",
        ),
        ("context_short", ("    async def clear", "    async def empty"), "There is no clear()."),
        ("context_short", (", provider=None):", "):"), "cannot be called with (token_budget=…, provider=…)"),
        (
            "context_short",
            ("async def get_messages(self)", "async def get_messages(self, at)"),
            "missing a required argument: 'at'",
        ),
        (
            "loop_plain",
            ("coordinator=None, **kwargs", "kernel=None"),
            "got an unexpected keyword argument 'coordinator'",
        ),
        ("loop_plain", ("self, prompt, context", "self, text, context"), "cannot be called with (prompt=…"),
    ],
)
async def test_a_member_of_the_protocol_that_is_not_as_it_should_be_is_named(examiner, example, change, problem):
    report = await examiner.examine(examiner.changed(example, change))
    [finding] = report.of("failed")
    assert finding.check == protocol_check.implements(report.subject.module_type).check
    assert problem in finding.problem


async def test_a_module_that_mounts_two_things_is_what_it_says(examiner):
    register = "    coordinator.hooks.register('tool:pre', print, priority=50, name='words')\n    return clean_up\n"
    say = ("class CountWords:", '__amplifier_module_type__ = "hook"\n\n\nclass CountWords:')
    path = examiner.changed("tool_words", say, ("    return clean_up\n", register))
    assert (await examiner.examine(path)).subject.module_type == "hook"


async def test_an_entry_point_that_leads_elsewhere_is_missed(examiner):
    path = examiner.changed("tool_words")
    (path.parent / "pyproject.toml").write_text("[project]\nname = 'words'\n")
    [finding] = (await examiner.examine(path)).of("failed")
    assert finding.check == structure.is_declared.check
    assert finding.problem.endswith("has no entry point in the group 'amplifier.modules' that leads to tool_words.")


async def test_an_entry_point_is_looked_at_only_where_there_is_a_project(examiner):
    report = await examiner.examine(examiner.changed("tool_words"))
    assert structure.is_declared.check not in {finding.check for finding in report.findings}
