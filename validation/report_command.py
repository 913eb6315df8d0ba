"""`muster report`: commands for the directory of a report, without the cluster."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from orchestrator.cli.options import OpenGroup
from orchestrator.distribution import require_extra
from orchestrator.progress import printable
from validation.report.files import untrusted

if TYPE_CHECKING:
    from validation.report.verify import Verification

CUT = 3
"""The exit code if the run was killed before it wrote its record."""
NOT_COMPARED = 4
"""The exit code if the record proves all verdicts, but this installation does not have the record's sources."""

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NEW = click.Path(path_type=Path, file_okay=False)


class _Reports(OpenGroup):
    """Commands on directories that are not trusted. A damaged record causes an error of one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with untrusted("the report"):
            return super().invoke(ctx)


@click.group(cls=_Reports, added="muster.report")
def report() -> None:
    """Verify, sign, compare and render the reports of `muster validate`; print the GPU hours.

    A run that was killed leaves only its log. Its missing results count as ERROR, and the exit code is 3.
    """


@report.command()
@_DIRECTORY
@click.option(
    "--key",
    "keys",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="Public key of a required signature. Repeatable.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RECORD",
    help="Record that the run must have used as its baseline.",
)
@click.pass_context
def verify(ctx: click.Context, directory: Path, keys: tuple[Path, ...], baseline: Path | None) -> None:
    """Compare every file with the manifest and the record with the log, and judge the record again.

    The command names each file that was changed, added or is missing. If there is one, the exit code is 1. If the
    record names sources that this installation does not have, the exit code is 4, and the last line says NOT COMPARED.

    A signature proves something only with the public key of its signer. The last line names the signatures whose keys
    are not given.
    """
    require_extra("validation")
    from validation.report import record
    from validation.report.baseline import problems as baseline_problems
    from validation.report.statement import accepted as accepted_notes
    from validation.report.statement import unchecked
    from validation.report.verify import verify as verify_report

    result = verify_report(directory, *keys)
    if baseline is not None and not result.problems:
        result.problems += baseline_problems(record.read(directory), baseline)
    accepted = ", ".join(accepted_notes(directory)) if not result.problems else ""
    for line in result.problems or _note_lines(result):
        click.echo(printable(line))
    if accepted:
        click.echo(printable(f"{directory}: signed with the notes {accepted} accepted"))
    if not result.problems:
        others = ", ".join(unchecked(directory, *keys))
        unknown = f"; NOT CHECKED, give each --key: the signature of {others}" if others else ""
        click.echo(printable(f"{directory}: {_verified(result)}{unknown}"))
    ctx.exit(_exit_code(result))


def _note_lines(result: "Verification") -> list[str]:
    return [f"{name}: {note}" for name, note in result.notes.items()]


def _verified(result: "Verification") -> str:
    """Return the last line for a report without problems."""
    if result.is_compared:
        return "every file is as it was written, and every verdict follows from the record"
    return (
        "NOT COMPARED: every verdict follows from the record, but this installation has other sources or titles "
        "than the record"
    )


def _exit_code(result: "Verification") -> int:
    if result.problems:
        return CUT if result.cut else 1
    return 0 if result.is_compared else NOT_COMPARED


@report.command()
@_DIRECTORY
@click.option("--key", type=_FILE, metavar="FILE", required=True, help="Private key (Ed25519, PEM).")
@click.option(
    "--accept", "accepted", multiple=True, metavar="NOTE", help="Name of an accepted note. Repeatable."
)
@click.pass_context
def sign(ctx: click.Context, directory: Path, key: Path, accepted: tuple[str, ...]) -> None:
    """Verify a report and sign its files and its verdict. A report can have several signatures.

    `verify` prints notes, for example for a catalogue of another version of muster. A report with notes is refused
    until --accept names each of them. The statement has their names.
    """
    require_extra("validation")
    from validation.report import record, statement
    from validation.report.verify import verify as verify_report

    result = verify_report(directory)
    for line in [*result.problems, *_note_lines(result)]:
        click.echo(printable(line))
    if result.problems:
        ctx.exit(_exit_code(result))
    refused = [name for name in result.notes if name not in accepted]
    if refused or (unknown := [name for name in accepted if name not in result.notes]):
        wrong = f"add --accept {refused[0]}, or do not sign" if refused else f"there is no note {unknown[0]}"
        click.echo(printable(f"{directory}: not signed: {wrong}"))
        ctx.exit(1)
    path = statement.sign(directory, record.read(directory), key, result.notes)
    *others, own = statement.signers(directory)
    beside = f"; beside it, NOT CHECKED: the signature of {', '.join(others)}" if others else ""
    click.echo(printable(f"{path}: signed by {own}{beside}"))


@report.command()
@_DIRECTORY
@click.pass_context
def rejudge(ctx: click.Context, directory: Path) -> None:
    """Recompute every verdict from the events, and compare the record with catalogue and scenarios.

    The command names each entry of the record that differs. The exit code is 1 if there is one.
    """
    require_extra("validation")
    from validation.report import chronology
    from validation.report.assemble import read_report, was_cut
    from validation.report.assemble import rejudge as judge_again
    from validation.report.log import read_log
    from validation.report.sources import compare

    source = read_log(directory)
    lines = chronology.endless(source)
    if not lines:
        lines = chronology.problems(source)
        compared = compare(source.opened.report)
        recorded = read_report(directory)
        lines += [*judge_again(recorded, source), *compared.problems]
        notes = [f"{name}: {note}" for name, note in compared.notes.items()]
        for line in [*lines, *notes, recorded.headline]:
            click.echo(printable(line))
        if was_cut(directory):
            click.echo(printable(recorded.summary))
            click.echo(printable(f"{directory}: the run was killed before it wrote its record"))
    else:
        click.echo(printable(lines[0]))
    ctx.exit(1 if lines else CUT if was_cut(directory) else 0)


@report.command()
@_DIRECTORY
def show(directory: Path) -> None:
    """Print the verdict, the requirements by part, and every check that did not pass. Nothing is verified."""
    require_extra("validation")
    from validation.report.assemble import read_report
    from validation.report.sources import with_own_titles
    from validation.report.terminal import render as render_text

    click.echo(render_text(with_own_titles(read_report(directory))), nl=False)


@report.command()
@_DIRECTORY
@click.option("--out", type=_NEW, required=True, metavar="DIR", help="Directory of the rendered files.")
def render(directory: Path, out: Path) -> None:
    """Write HTML, Markdown and JUnit XML again, from the record alone, also for a run that was killed."""
    require_extra("validation")
    from validation.report.assemble import read_report
    from validation.report.sources import with_own_titles
    from validation.report.write import render_into

    render_into(with_own_titles(read_report(directory)), out)
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
        click.echo(printable(line))
    ctx.exit(1 if lines else 0)


@report.command()
@_DIRECTORY
@click.option("--out", type=_NEW, required=True, metavar="DIR", help="New directory for the redacted report.")
@click.pass_context
def redact(ctx: click.Context, directory: Path, out: Path) -> None:
    """Write a report with pseudonyms for projects, hosts and people, for passing on.

    All verdicts still follow from the new report. The new report names the original one by the digest of its manifest.
    It has no output of commands, no paths and no logs of programs. A report that does not verify is refused.
    """
    require_extra("validation")
    from validation.report.redact import redact as redact_report
    from validation.report.verify import verify as verify_report

    result = verify_report(directory)
    for line in result.problems:
        click.echo(printable(line))
    if result.problems:
        ctx.exit(_exit_code(result))
    click.echo(printable(f"{out}: {redact_report(directory, out).headline}"))


@report.command()
@_DIRECTORY
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Page with one chart for each figure.",
)
@click.pass_context
def trend(ctx: click.Context, directory: Path, output: str, out: Path | None) -> None:
    """Show each figure of hosts and GPUs over the records of a site, in the directories below DIRECTORY.

    Records of several clusters are shown apart. A record that does not verify, or has no hosts, is left out by name.
    Then the exit code is 1.
    """
    require_extra("validation")
    from orchestrator.progress import terminal_reporter
    from validation.report import trend_pages
    from validation.report.trend import trend_of

    reporter = terminal_reporter()
    try:
        found = trend_of(directory, reporter.update)
    finally:
        reporter.close()
    if out is not None:
        trend_pages.write(found, out)
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found), indent=1))
    else:
        click.echo("\n".join(printable(line) for line in trend_pages.table(found)))
        if out is not None:
            click.echo(printable(f"{out}"))
    ctx.exit(1 if found.unread else 0)
