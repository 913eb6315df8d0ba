"""`muster report`: what can be done with the directory of a report, without the cluster."""

from pathlib import Path

import click

from orchestrator.distribution import require_extra

CUT = 3
"""The exit code where the run was killed before it wrote its record."""

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NEW = click.Path(path_type=Path, file_okay=False)


@click.group()
def report() -> None:
    """Check a report of `muster validate`: that nothing was changed, and that every verdict follows from the record.

    Of a run that was killed there is the log alone; what it did not live to see is an ERROR, and the exit code is 3.
    """


@report.command()
@_DIRECTORY
@click.option("--key", type=_FILE, metavar="FILE", help="Public key of somebody who must have signed.")
@click.pass_context
def verify(ctx: click.Context, directory: Path, key: Path | None) -> None:
    """Compare every file with the manifest and the record with the log, and judge the record again.

    Each file that was changed, is missing or does not belong there is named, and the exit code is 1 if there is one.
    """
    require_extra("validation")
    from validation.report.statement import signers
    from validation.report.verify import verify as verify_report

    result = verify_report(directory, key)
    for line in result.problems or result.notes:
        click.echo(line)
    if not result.problems:
        unchecked = "" if key else "; no signature was checked: give --key" if signers(directory) else ""
        click.echo(
            f"{directory}: every file is as it was written, and every verdict follows from the record{unchecked}"
        )
    ctx.exit(CUT if result.cut else 1 if result.problems else 0)


@report.command()
@_DIRECTORY
@click.option("--key", type=_FILE, metavar="FILE", required=True, help="Private key (Ed25519, PEM).")
@click.pass_context
def sign(ctx: click.Context, directory: Path, key: Path) -> None:
    """Sign a report, after it was verified: the key answers for its files and its verdict. More than one may sign."""
    require_extra("validation")
    from validation.report import record, statement
    from validation.report.verify import verify as verify_report

    result = verify_report(directory)
    for line in result.problems:
        click.echo(line)
    if result.problems:
        ctx.exit(CUT if result.cut else 1)
    path = statement.sign(directory, record.read(directory), key)
    click.echo(f"{path}: signed by {', '.join(statement.signers(directory))}")


@report.command()
@_DIRECTORY
@click.pass_context
def rejudge(ctx: click.Context, directory: Path) -> None:
    """Recompute every verdict from the events of the run, and compare what was asked for with catalogue and scenarios.

    Each entry of the record that does not follow is named, and the exit code is 1 if there is one.
    """
    require_extra("validation")
    from validation.report.assemble import read_report, was_cut
    from validation.report.assemble import rejudge as judge_again
    from validation.report.log import read_log
    from validation.report.sources import differences, notes

    recorded = read_report(directory)
    lines = [*judge_again(recorded, read_log(directory)), *differences(recorded)]
    for line in [*lines, *notes(recorded)]:
        click.echo(line)
    click.echo(recorded.headline)
    if was_cut(directory):
        click.echo(f"{recorded.summary}\n{directory}: the run was killed before it wrote its record")
    ctx.exit(1 if lines else CUT if was_cut(directory) else 0)


@report.command()
@_DIRECTORY
def show(directory: Path) -> None:
    """Print the verdict, the requirements by part, and every check that did not pass. Nothing is verified."""
    require_extra("validation")
    from validation.report.assemble import read_report
    from validation.report.terminal import render as render_text

    click.echo(render_text(read_report(directory)), nl=False)


@report.command()
@_DIRECTORY
@click.option("--out", type=_NEW, required=True, metavar="DIR", help="Directory for what is rendered.")
def render(directory: Path, out: Path) -> None:
    """Write HTML, Markdown and JUnit XML again, from the record alone; of a run that was cut, too."""
    require_extra("validation")
    from validation.report.assemble import read_report
    from validation.report.write import render_into

    render_into(read_report(directory), out)
    click.echo(f"{out / 'report.html'}")


@report.command()
@_DIRECTORY
@click.argument("other", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.pass_context
def diff(ctx: click.Context, directory: Path, other: Path) -> None:
    """Compare two reports, but for what differs between any two runs: times, uids, events.

    Each entry that differs is named with both values, and the exit code is 1 if there is one.
    """
    require_extra("validation")
    from validation.report.assemble import read_report
    from validation.report.diff import differences

    lines = differences(read_report(directory), read_report(other))
    for line in lines:
        click.echo(line)
    ctx.exit(1 if lines else 0)


@report.command()
@_DIRECTORY
@click.option(
    "--out", type=_NEW, required=True, metavar="DIR", help="Directory for the redacted report; a new one."
)
@click.pass_context
def redact(ctx: click.Context, directory: Path, out: Path) -> None:
    """Write a report that may be passed on: names of projects, hosts and people are replaced, each by one of its own.

    All verdicts follow from it as before. It names the report that it was made from by the digest of its manifest;
    output of commands, paths and logs of programs are left out. A report that does not verify is refused.
    """
    require_extra("validation")
    from validation.report.redact import redact as redact_report
    from validation.report.verify import verify as verify_report

    result = verify_report(directory)
    for line in result.problems:
        click.echo(line)
    if result.problems:
        ctx.exit(CUT if result.cut else 1)
    click.echo(f"{out}: {redact_report(directory, out).headline}")
