"""`muster report`: what can be done with the directory of a report, without the cluster."""

from pathlib import Path

import click

from orchestrator.distribution import require_extra
from orchestrator.errors import MusterError

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def report() -> None:
    """Check a report of `muster validate`: that nothing was changed, and that every verdict follows from the record."""


@report.command()
@_DIRECTORY
@click.option("--key", type=_FILE, metavar="FILE", help="Public key of somebody who must have signed.")
@click.pass_context
def verify(ctx: click.Context, directory: Path, key: Path | None) -> None:
    """Compare every file with the manifest, and judge the record again.

    Each file that was changed, is missing or does not belong there is named, and the exit code is 1 if there is one.
    """
    lines = verify_directory(directory, key)
    for line in lines:
        click.echo(line)
    if not lines:
        from validation.report.statement import signers

        unchecked = "" if key else "; no signature was checked: give --key" if signers(directory) else ""
        click.echo(
            f"{directory}: every file is as it was written, and every verdict follows from the record{unchecked}"
        )
    ctx.exit(1 if lines else 0)


@report.command()
@_DIRECTORY
@click.option("--key", type=_FILE, metavar="FILE", required=True, help="Private key (Ed25519, PEM).")
@click.pass_context
def sign(ctx: click.Context, directory: Path, key: Path) -> None:
    """Sign a report, after it was verified: the key answers for its files and its verdict. More than one may sign."""
    lines = verify_directory(directory, None)
    for line in lines:
        click.echo(line)
    if lines:
        ctx.exit(1)
    from validation.report import statement

    click.echo(f"{statement.sign(directory, key)}: signed by {', '.join(statement.signers(directory))}")


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


def verify_directory(directory: Path, key: Path | None = None) -> list[str]:
    """A line for each file that is not as it was written, and for each verdict that does not follow."""
    require_extra("validation")
    from validation.report import manifest, statement

    lines = manifest.problems(directory, beside=[statement.NAME])
    if lines:
        return lines
    try:
        lines = [f"report.json: {line}" for line in _rejudge(directory)[1]]
        return [*lines, *statement.problems(directory, key)]
    except MusterError as error:
        return [str(error)]


def _rejudge(directory: Path) -> tuple[str, list[str]]:
    """The headline as it is recorded, and what does not follow from the record."""
    require_extra("validation")
    from validation.report.record import read
    from validation.report.rejudge import rejudge as judge_again

    recorded = read(directory)
    return recorded.headline, judge_again(recorded)
