"""``python -m conformance AGENT.yaml``: run the scenarios against agents, and report."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from conformance.agent import DescriptionError, read_agent
from conformance.report import AgentReport, Result, as_json, as_markdown
from conformance.scenarios import SCENARIOS
from conformance.stage import ScenarioFailed, stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.agent import Agent
    from conformance.scenarios import Scenario

_NAMES = [each.name for each in SCENARIOS]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("agents", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--only", multiple=True, type=click.Choice(_NAMES), help="A scenario; repeatable. Default: all.")
@click.option("--times", default=1, show_default=True, type=click.IntRange(1), help="Repeat each; one failure counts.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Keep the agents' folders and logs here."
)
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Write the table to this file.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results as JSON.")
def main(  # noqa: PLR0913, PLR0917 - one argument per option
    agents: tuple[Path, ...],
    only: tuple[str, ...],
    times: int,
    folder: Path | None,
    markdown: Path | None,
    json_file: Path | None,
) -> None:
    """Run scenarios against the agents that the files AGENTS describe. Exit code 1: a scenario failed."""
    try:
        described = [(path, read_agent(path)) for path in agents]
    except DescriptionError as e:
        raise click.UsageError(str(e)) from e
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty: an agent would find the files of an earlier one. Name another.")
    for output in filter(None, (markdown, json_file)):
        if not output.parent.is_dir():
            raise click.UsageError(f"{output} cannot be written: there is no folder {output.parent}. Make it first.")
    chosen = [each for each in SCENARIOS if not only or each.name in only]
    date = datetime.now(UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as temporary:
        place = (folder or Path(temporary)).resolve()
        reports = [
            asyncio.run(_report(agent, path.resolve(), chosen, times, place / f"{number}-{_slug(agent.name)}"))
            for number, (path, agent) in enumerate(described, 1)
        ]
    table = as_markdown(reports, chosen, date)
    click.echo(f"\n{table}")
    for file, text in ((markdown, table), (json_file, as_json(reports, date))):
        if file is not None:
            file.write_text(text, encoding="utf-8")
    sys.exit(1 if any(each.failures for each in reports) else 0)


async def _report(agent: Agent, path: Path, scenarios: Sequence[Scenario], times: int, folder: Path) -> AgentReport:
    results = []
    for scenario in scenarios:
        result = Result(scenario.name, "not tried")
        for attempt in range(times if scenario.can_try(agent) else 0):
            result = await _tried(agent, path.parent, scenario, folder / f"{scenario.name}-{attempt}")
            if result.verdict == "failed":
                break
        click.echo(f"{agent.name}: {scenario.name}: {result.verdict}{f' ({result.detail})' if result.detail else ''}")
        results.append(result)
    return AgentReport(agent.name, agent.version, tuple(results))


async def _tried(agent: Agent, here: Path, scenario: Scenario, folder: Path) -> Result:
    measured_s: dict[str, float] = {}
    try:
        folder.mkdir(parents=True)  # noqa: ASYNC240 - nothing else runs
        async with stage(agent, here, folder) as there:
            measured_s = there.measured_s
            await scenario.act(there)
            if scenario.compares_answers:
                await there.settle(scenario.patience_s)
                there.check()
    except ScenarioFailed as e:
        return Result(scenario.name, "failed", str(e), measured_s)
    except Exception as e:  # noqa: BLE001 - the results of the other scenarios must not be lost
        return Result(scenario.name, "failed", f"the suite: {type(e).__name__}: {e}", measured_s)
    return Result(scenario.name, "passed", "", measured_s)


def _slug(name: str) -> str:
    """Return a name as a part of a path that a shell does not split."""
    return re.sub(r"\W+", "-", name, flags=re.ASCII).strip("-").lower()


if __name__ == "__main__":
    main()
