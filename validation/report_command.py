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
    """Verify, sign, compare and render the reports of `muster validate`.

    A run that was killed leaves only its log. Its missing results count as ERROR, and the exit code is 3.
    """


@report.command()
@_DIRECTORY
@click.option("--key", type=_FILE, metavar="FILE", help="Public key of a required signature.")
@click.pass_context
def verify(ctx: click.Context, directory: Path, key: Path | None) -> None:
    """Compare every file with the manifest and the record with the log, and judge the record again.

    The command names each file that was changed, added or is missing. The exit code is 1 if there is one.
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
    """Verify a report and sign its files and its verdict. A report can have several signatures."""
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
    """Recompute every verdict from the events, and compare the record with catalogue and scenarios.

    The command names each entry of the record that does not follow. The exit code is 1 if there is one.
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
@click.option("--out", type=_NEW, required=True, metavar="DIR", help="Directory of the rendered files.")
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
    """Compare two reports, except for times, uids and events, which differ between any two runs.

    The command prints each different entry with both values. The exit code is 1 if there is one.
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
@click.option("--out", type=_NEW, required=True, metavar="DIR", help="New directory for the redacted report.")
@click.pass_context
def redact(ctx: click.Context, directory: Path, out: Path) -> None:
    """Write a report with pseudonyms for projects, hosts and people, for passing on.

    All verdicts still follow from it. It names the original report by the digest of its manifest. It has no
    output of commands, no paths and no logs of programs. A report that does not verify is refused.
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
