"""`muster snapshot` and `muster simulate`: a cluster as a file, and the scheduler's decision on it."""

from pathlib import Path

import click

from orchestrator.cli.options import Command
from orchestrator.cli.outcome import show, warn
from orchestrator.cli.output import json_option
from orchestrator.errors import UsageError


@click.command("snapshot", cls=Command)
@click.option("--schema", is_flag=True, default=None, help="Print the JSON Schema of the file instead.")
@json_option()
def snapshot(*, schema: bool | None, as_json: bool | None) -> None:
    """Print the input of the scheduler as YAML: nodes, projects and workloads.

    The file has requests, constraints, placements and quotas. It has no commands, environments or secrets.
    `muster simulate`, `muster what-if --from` and `muster explain --from` read it.
    """
    from orchestrator.cli.output import document
    from orchestrator.cli.session import run
    from orchestrator.simulation import forms, writer
    from orchestrator.simulation.capture import capture

    if schema:
        click.echo(document(forms.json_schema(), "json"))
        return
    captured = run(lambda client: capture(client.transport))
    warn(captured)
    if as_json:
        click.echo(document(writer.document(captured.snapshot), "json"))
    else:
        click.echo(writer.dump(captured.snapshot), nl=False)


@click.command("simulate", cls=Command, no_args_is_help=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--until-stable", is_flag=True, default=None, help="Repeat the decision until nothing changes.")
@click.option(
    "--grace-decisions",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --until-stable: evicted pods hold their GPUs for N decisions, while their replacements "
    "are already pending.  [default: 0]",
)
@json_option()
def simulate(
    *, file: Path, until_stable: bool | None, grace_decisions: int | None, as_json: bool | None
) -> None:
    """Run the scheduler on a snapshot FILE: show bindings, evictions and pending jobs, with reasons.

    Evicted pods are pending again immediately, and no pod ends by itself. The command reads the file alone and
    writes nothing.
    """
    from orchestrator.planner import plan
    from orchestrator.simulation.outcome import outcome
    from orchestrator.simulation.reader import load
    from orchestrator.simulation.run import decide_once, settle

    if grace_decisions and not until_stable:
        raise UsageError("--grace-decisions needs --until-stable: the grace ends in a later decision")
    before = load(file)
    result = settle(before, grace_decisions=grace_decisions or 0) if until_stable else decide_once(before)
    show(outcome(before, plan(before), result), as_json=bool(as_json))
