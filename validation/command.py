"""`muster validate`: replay the scenarios on a cluster and leave a report."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.distribution import require_extra
from orchestrator.errors import MusterError, UsageError
from orchestrator.progress import terminal_reporter
from validation.judge.verdict import Verdict
from validation.plan import plan
from validation.scenario.loader import find, load, select
from validation.targets.kinds import CLUSTER, IMAGE, LAB, PROCESS

if TYPE_CHECKING:
    from validation.report.record import Report
    from validation.scenario.loader import LoadedScenario
    from validation.targets.operator_deployment import OperatorImage


@click.command()
@click.option(
    "--target",
    type=click.Choice([LAB, CLUSTER]),
    default=LAB,
    show_default=True,
    help="lab: a control plane of our own with simulated nodes. cluster: the one of the kubeconfig.",
)
@click.option(
    "--scenario", "pattern", default="*", metavar="GLOB", help="Which scenarios, by id. Default: all."
)
@click.option(
    "--scenarios",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Scenario file or directory, instead of those that ship with muster. Repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the report. Default: reports/RUN.",
)
@click.option(
    "--operator",
    type=click.Choice([PROCESS, IMAGE]),
    default=PROCESS,
    show_default=True,
    help="In the lab. process: of this installation, beside simulated nodes. image: of `make image`, on real nodes.",
)
@click.option(
    "--image",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="OCI archive for --operator image. Default: dist/muster-VERSION.oci.tar.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help="Access to the cluster.")
@click.option("--fail-fast", is_flag=True, help="Run nothing more after the first step that does not pass.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Multiplies every deadline, for slow clusters.",
)
@click.option(
    "--waive", "waivers", multiple=True, metavar="ID=REASON", help="Accept the failure of a step. Repeatable."
)
@click.option("--list", "list_only", is_flag=True, help="Print the test plan and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary, or the plan, as JSON.")
@click.pass_context
def validate(ctx: click.Context, /, pattern: str, paths: tuple[Path, ...], **options: Any) -> None:
    """Prove that a cluster shares its GPUs as TR-4858 §4.8 to §4.10 says, and file the evidence.

    The exit code is 0 only if the overall verdict is PASS.
    """
    try:
        scenarios = select(load(find(list(paths))), pattern)
        if options["list_only"]:
            _print_plan(scenarios, as_json=options["as_json"])
            return
        report, directory = _run(scenarios, options)
    except MusterError as error:
        if ctx.find_root().info_name == "muster":
            raise
        raise click.ClickException(str(error)) from error
    _print_summary(report, directory, as_json=options["as_json"])
    ctx.exit(0 if report.verdict == Verdict.PASS else 130 if report.run.interrupted else 1)


def _run(scenarios: "list[LoadedScenario]", options: dict[str, Any]) -> "tuple[Report, Path]":
    require_extra("validation", *(["deployment"] if options["target"] == LAB else []))  # the lab is a site
    from validation.pytest_run import run
    from validation.run import Options
    from validation.session import Settings

    image = _operator_image(options)
    reporter = terminal_reporter()
    settings = Settings(
        target=options["target"],
        kubeconfig=options["kubeconfig"],
        image=image,
        out=options["out"],
        options=Options(
            fail_fast=options["fail_fast"], patience=options["patience"], waivers=_waivers(options["waivers"])
        ),
        progress=reporter,
        argv=["muster", *sys.argv[1:]],
    )
    reporter(
        f"{len(scenarios)} scenarios, {len(plan(scenarios))} steps and invariants, target: {settings.target}"
    )
    try:
        return run([str(scenario.path) for scenario in scenarios], settings)
    finally:
        reporter.close()


def _operator_image(options: dict[str, Any]) -> "OperatorImage | None":
    """Return the image of the lab's operator, None for a process. Raises before anything is started."""
    if options["operator"] != IMAGE:
        if options["image"] is not None:
            raise UsageError("--image is for --operator image")
        return None
    if options["target"] != LAB:
        raise UsageError(
            f"--operator is for --target {LAB}: on a cluster the operator is the one that runs there"
        )
    from validation.targets.operator_deployment import find_image

    return find_image(options["image"])


def _waivers(texts: tuple[str, ...]) -> dict[str, str]:
    waivers = {}
    for text in texts:
        name, equals, reason = text.partition("=")
        if not equals or not reason.strip():
            raise UsageError(f"--waive {text}: write ID=REASON; a deviation without a reason is not accepted")
        waivers[name] = reason.strip()
    return waivers


def _print_plan(scenarios: "list[LoadedScenario]", *, as_json: bool) -> None:
    checks = plan(scenarios)
    if as_json:
        click.echo(json.dumps([{"id": check.id, "title": check.title} for check in checks], indent=1))
        return
    for check in checks:
        click.echo(f"{check.id}  {check.title}")
        for command in check.step.commands if check.step else ():
            click.echo(f"    $ {shlex.join(shlex.split(command.line))}")


def _print_summary(report: "Report", directory: Path, *, as_json: bool) -> None:
    if as_json:
        summary = {
            "verdict": report.verdict,
            "summary": report.summary,
            "report": str(directory),
            "steps": {step.id: step.verdict for step in report.steps},
        }
        click.echo(json.dumps(summary, indent=1))
        return
    click.echo(f"{report.verdict}  {report.summary}")
    click.echo(f"report: {directory / 'report.html'}")
