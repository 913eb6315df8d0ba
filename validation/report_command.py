"""`muster report`: what can be done with the directory of a report, without the cluster."""

from pathlib import Path

import click

from orchestrator.distribution import require_extra
from orchestrator.errors import MusterError

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))


@click.group()
def report() -> None:
    """Check a report of `muster validate`: that nothing was changed, and that every verdict follows from the record."""


@report.command()
@_DIRECTORY
@click.pass_context
def verify(ctx: click.Context, directory: Path) -> None:
    """Compare every file with the manifest, and judge the record again.

    Each file that was changed, is missing or does not belong there is named, and the exit code is 1 if there is one.
    """
    lines = verify_directory(directory)
    for line in lines:
        click.echo(line)
    if not lines:
        click.echo(f"{directory}: every file is as it was written, and every verdict follows from the record")
    ctx.exit(1 if lines else 0)


@report.command()
@_DIRECTORY
@click.pass_context
def rejudge(ctx: click.Context, directory: Path) -> None:
    """Recompute every verdict from report.json alone.

    Each entry that does not follow from the record is named, and the exit code is 1 if there is one.
    """
    headline, lines = _rejudge(directory)
    for line in lines:
        click.echo(line)
    click.echo(headline)
    ctx.exit(1 if lines else 0)


def verify_directory(directory: Path) -> list[str]:
    """A line for each file that is not as it was written, and for each verdict that does not follow."""
    require_extra("validation")
    from validation.report.manifest import problems

    lines = problems(directory)
    if lines:
        return lines
    try:
        return [f"report.json: {line}" for line in _rejudge(directory)[1]]
    except MusterError as error:
        return [str(error)]


def _rejudge(directory: Path) -> tuple[str, list[str]]:
    """The headline as it is recorded, and what does not follow from the record."""
    require_extra("validation")
    from validation.report.record import read
    from validation.report.rejudge import rejudge as judge_again

    recorded = read(directory)
    return recorded.headline, judge_again(recorded)
