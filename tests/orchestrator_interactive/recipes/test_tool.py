from __future__ import annotations

import json

import pytest
from agents import call, make_agent, say, use
from recipe_sessions import RecipeSession, Rules

from orchestrator_interactive.recipes import tool

IDS = {"operation": "run", "recipe": "research", "inputs": {"question": "Why?"}}

PATTERN, TEXT = "pattern: '^(a|a)*$'", f"{'a' * 60}b"
SLOW = f"n: {{{PATTERN}, default: {TEXT}}}, m: {{items: {{{PATTERN}}}, type: array, default: [{TEXT}]}}"
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 20))


def checked(instruction="Write.", inputs=""):
    """Return the arguments that check a recipe of one step."""
    step = f'{{id: a, agent: self, instruction: "{instruction}"}}'
    return {"operation": "validate", "yaml": f"name: x\nsteps: [{step}]\ninputs: {{{inputs}}}"}


class Workers:
    """The capabilities of the service: a worker for each call id."""

    def __init__(self):
        self.dispatched = {}
        self.stopped = []

    async def dispatch(self, instruction, *, title, call_id, overlay, timeout_s):
        self.dispatched[call_id] = {"instruction": instruction, "overlay": overlay, "timeout_s": timeout_s}
        return {"id": "w-1", "title": title}

    async def list(self):
        return {"workers": [await self.show("w-1"), await self.show("w-2")]}

    async def show(self, id):  # noqa: A002 - the capability's name
        return {"id": id, "title": "Recipe research" if id == "w-1" else "Other", "status": ""}

    async def stop(self, id, call_id):  # noqa: A002 - the capability's name
        self.stopped.append((id, call_id))

    def register(self, coordinator):
        for name in ("dispatch", "list", "show", "stop"):
            coordinator.register_capability(f"workers.{name}", getattr(self, name))


async def answers(*inputs, workers=None, config=None):
    """Let an agent call the tool with each input; return the results as it reads them."""
    agent = await make_agent(*(call(use("recipes", f"c{n}", **each)) for n, each in enumerate(inputs)), say("done"))
    if workers is not None:
        workers.register(agent.coordinator)
    await tool.mount(agent.coordinator, config or {})
    await agent.session.execute("go")
    return [row["content"] for row in await agent.context.get_messages() if row["role"] == "tool"]


async def test_a_recipe_starts_as_a_worker_whose_provider_it_is():
    workers = Workers()
    [said] = await answers(IDS, workers=workers, config={"timeout_s": 60})
    assert said == "The recipe research has started as worker w-1. Its report comes into the thread."
    given = workers.dispatched["c0"]
    assert given["instruction"].startswith("Run the recipe research with question=Why?, agent=self")
    assert given["timeout_s"] == 60
    [entry] = json.loads(json.dumps(given["overlay"]))["providers"]
    assert entry["module"] == "provider-recipe"
    session = RecipeSession(entry["config"]["recipe"], inputs=entry["config"]["inputs"])
    session.rules = Rules(lambda said: '{"score": 1, "comment": "Good."}' if said.startswith("Judge how") else "Tea.")
    await session.begin()
    assert await session.run() == "Tea.\n\n_A judge gave this 1.0 of 1. Good._"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"operation": "status"}, "w-1: Recipe research, at work"),
        ({"operation": "status", "id": "w-1"}, "w-1: Recipe research, at work"),
        ({"operation": "status", "id": "w-2"}, "w-2 is no recipe."),
        ({"operation": "cancel", "id": "w-1"}, "I am stopping Recipe research (w-1)."),
        ({"operation": "cancel"}, "'cancel' needs 'id'"),
        ({**IDS, "inputs": {}}, "Input 'question' is missing: The question to answer."),
        ({"operation": "validate", "recipe": "research"}, "The recipe research is valid: 3 steps."),
        ({"operation": "validate", "yaml": "name: x\nsteps: [{id: a}]"}, "yaml, step 'a': it needs one of"),
        (checked("{{ 9**9**9 }}{{ 'a'|center(10**10) }}"), "1 steps."),
        (checked("{% set a = 9**9**9 %}"), "1 steps."),
        (checked("{% autoescape 9**9**9 %}{% endautoescape %}"), "1 steps."),
        (checked(inputs=SLOW), "1 steps."),
        ({"operation": "validate", "yaml": MERGES}, "yaml, line 2: this is not YAML: a recipe has no merges (<<)"),
        ({"operation": "validate", "yaml": "x" * 20_001}, "at most 20000 characters"),
        ({"operation": "list"}, 'code_review pattern=… [path="."]'),
    ],
)
async def test_an_operation_answers_in_a_sentence(wanted, said):
    workers = Workers()
    [answer] = await answers(wanted, workers=workers)
    assert said in answer
    assert workers.stopped == ([("w-1", "c0")] if "stopping" in said else [])
    assert workers.dispatched == {}


async def test_without_workers_nothing_is_run():
    assert "There are no workers here" in (await answers(IDS))[0]


@pytest.mark.parametrize(
    ("name", "inputs", "parts"),
    [
        ("code_review", {"pattern": "*.py"}, ["Review of 2 files", "done: These are reviews"]),
        ("code_review", {"pattern": "*.md"}, ["No file in `.` matches `*.md`."]),
        ("weekly_summary", {"text": "Ana: hi"}, ["The week in the channel", "Ana: hi"]),
        ("weekly_summary", {"file": "a.py", "channel": "#x"}, ["The week in #x", "print"]),
        ("weekly_summary", {}, ["Step 'slack' needs the tool `slack_read`, which this agent does not have."]),
    ],
)
async def test_the_shipped_recipes_work_with_the_real_file_tools(name, inputs, parts, tmp_path):
    from orchestrator_interactive.modules import tool_filesystem  # noqa: PLC0415
    from orchestrator_interactive.recipes.library import RecipesOptions, recipes_of  # noqa: PLC0415

    for each in ("a.py", "b.py"):
        (tmp_path / each).write_text("print(1)\n")
    session = RecipeSession(recipes_of(RecipesOptions())[name].source, inputs=inputs)
    await session.begin()
    await tool_filesystem.mount(session.session.coordinator, {"root": str(tmp_path)})
    report = await session.run()
    assert all(part in report for part in parts)
