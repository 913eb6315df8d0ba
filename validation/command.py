"""`muster validate`: replay the scenarios on a cluster and leave a report."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from musterlab.realnodes.requirements import MAXIMUM_NODES
from orchestrator.distribution import require_extra
from orchestrator.errors import MusterError, UsageError
from orchestrator.progress import printable, terminal_reporter
from validation.layers.checks import TESTS, describe_tests
from validation.layers.tools import FIO, MOUNTS
from validation.plan.acceptance import open_acceptance
from validation.plan.plan_document import document
from validation.planned_checks import plan
from validation.scenario.images import NO_MAP
from validation.scenario.loader import find, load, select
from validation.scenario.scaling import Size, parse_size
from validation.targets.kinds import CLUSTER, GPUS, LAB, REAL_LAB, TARGETS

if TYPE_CHECKING:
    from musterlab.gpus.models import Gpus
    from validation.plan.acceptance import Acceptance
    from validation.report.record import Report
    from validation.run.session import Settings
    from validation.scenario.loaded import LoadedScenario
    from validation.targets.hosts import SiteHosts
    from validation.targets.real_lab import RealNodes


@click.command()
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default=LAB,
    show_default=True,
    help="lab: a new control plane with simulated nodes. cluster: the cluster of the kubeconfig. "
    "planner: the planner alone, without a control plane.",
)
@click.option(
    "--scenario",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Ids of the scenarios. Default: all. Repeatable.",
)
@click.option(
    "--scenarios",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Scenario file or directory, instead of the scenarios of muster. Repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the report. Default: reports/RUN.",
)
@click.option(
    "--real-nodes",
    type=click.IntRange(1, MAXIMUM_NODES),
    help="Number of nodes of the lab that run containers. They have a kubelet, volumes, and GPUs of a double of NVML. "
    "The operator is the image of `make image`. Needs root.",
)
@click.option(
    "--gpus",
    metavar="MODELxN",
    help=f"GPUs of each real node, such as h100x4.  [default: {GPUS}]",
)
@click.option(
    "--image",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="OCI archive of the operator, for --real-nodes.  [default: dist/muster-VERSION.oci.tar]",
)
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help="The kubeconfig file to use."
)
@click.option(
    "--profile",
    default="",
    metavar="NAME",
    help="Kind of site, which selects the requirements that apply: lab, lab-real, tr4858, current, rehearsal "
    "or planner. Default: by the target; current for a cluster.",
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="NAME",
    help="Part of the catalogue that the verdict covers, for example fairness. Default: all. Repeatable.",
)
@click.option(
    "--site",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="Site file. Its hosts with GPUs are examined over SSH, with tools that change nothing. "
    "Implies --target cluster.",
)
@click.option(
    "--host-test",
    "host_tests",
    multiple=True,
    type=click.Choice(TESTS),
    help=f"Test that puts a load on the hosts, or writes: {describe_tests()}. Repeatable.",
)
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="DIR",
    help="Mount point of the storage on every host, with --site. Repeatable.",
)
@click.option(
    "--golden", default="", metavar="HOST", help="Reference host: the other hosts of the site must equal it."
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RECORD",
    help="Report of an earlier run on the same site, with --site. The figures and facts of each host and GPU are "
    "compared with it.",
)
@click.option(
    "--in-service",
    is_flag=True,
    help="Examine the hosts of --site while users work on the cluster: only ready nodes without a pod, which are "
    "cordoned meanwhile. No pod is evicted. The exit code is 1 only if a check is FAIL or ERROR.",
)
@click.option(
    "--size",
    metavar="NODESxGPUS",
    callback=lambda _ctx, _param, text: _size(text),
    help="Number of nodes and GPUs of each node, for example 8x8. The scenarios are scaled to them. "
    "Default: those of the hosts of --site, else 2x8 as in the documents.",
)
@click.option("--fail-fast", is_flag=True, help="Stop after the first step that does not pass.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1, max=4.0),
    callback=lambda _ctx, _param, factor: _number(factor),
    default=1.0,
    show_default=True,
    help="Factor on every deadline, for slow clusters. The report records it.",
)
@click.option(
    "--waivers",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="YAML file of accepted deviations: a list of id, host, fact, owner, reason and expires.",
)
@click.option("--collect-only", is_flag=True, help="Print the plan as a document to sign, and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary, or the plan, as JSON.")
@click.pass_context
def validate(
    ctx: click.Context, /, patterns: tuple[str, ...], paths: tuple[Path, ...], **options: Any
) -> None:
    """Check a cluster against a catalogue of requirements, such as TR-4858 §4.8 to §4.10, and write a report.

    The verdict covers the catalogue of all requirements, or the chosen parts of it. A check that did not run
    never counts as passed. The exit code is 0 only if the verdict is PASS, or WAIVED if deviations were
    accepted.
    """
    try:
        _imply_cluster(ctx, options)
        _check_real_nodes(options)
        _check_in_service(options, patterns or paths)
        acceptance = open_acceptance(options["profile"], options["parts"], _kind(options))
        scenarios = acceptance.select(select(load(find(list(paths)), _chosen_size(options)), patterns))
        if options["collect_only"]:
            _print_plan(acceptance, scenarios, _chosen_hosts(options), as_json=options["as_json"])
            return
        report, directory = _run(scenarios, {**options, "paths": paths, "patterns": patterns})
    except MusterError as error:
        if ctx.find_root().info_name == "muster":
            raise
        raise click.ClickException(str(error)) from error
    _print_summary(report, directory, as_json=options["as_json"])
    from validation.run.session import exit_code

    ctx.exit(exit_code(report))


def _imply_cluster(ctx: click.Context, options: dict[str, Any]) -> None:
    """If --site is given, choose the target `cluster`, because only a cluster has hosts.

    Refuse any other chosen target.
    """
    if options["site"] is not None:
        require_extra("validation", "deployment")
        if ctx.get_parameter_source("target") == ParameterSource.DEFAULT:
            options["target"] = CLUSTER
        elif options["target"] != CLUSTER:
            raise UsageError(f"--site is for --target {CLUSTER}: a {options['target']} has no hosts")


def _size(text: str | None) -> "Size | None":
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _kind(options: dict[str, Any]) -> str:
    """Return the kind of the target, with the name that profiles use."""
    return options["target"] if options["real_nodes"] is None else REAL_LAB


def _check_real_nodes(options: dict[str, Any]) -> None:
    """Raise UsageError for an option that needs real nodes, if no real nodes are requested. Also raise it for an
    option that real nodes exclude.
    """
    if options["real_nodes"] is None:
        given = next((name for name in ("gpus", "image") if options[name] is not None), None)
        if given is not None:
            raise UsageError(f"--{given} is for --real-nodes")
        return
    if options["target"] != LAB:
        raise UsageError(f"--real-nodes is for --target {LAB}: a {options['target']} has nodes of its own")
    if options["size"] is not None:
        raise UsageError("--size is not for --real-nodes: --real-nodes and --gpus give the size")


def _check_in_service(options: dict[str, Any], chosen: tuple[object, ...]) -> None:
    """Choose the part `hosts` for a cluster in service. Raises UsageError for an option that would disturb users."""
    if not options["in_service"]:
        return
    options["parts"] = options["parts"] or ("hosts",)
    disturbing = [test for test in options["host_tests"] if test in {FIO, MOUNTS}]
    if options["site"] is None:
        raise UsageError("--in-service is for --site, which names the hosts")
    if chosen or set(options["parts"]) != {"hosts"}:
        raise UsageError("--in-service is for --part hosts: other parts need a cluster without users")
    if disturbing:
        raise UsageError(f"--host-test {disturbing[0]} is not for --in-service: jobs use the same storage")
    if options["golden"]:
        raise UsageError(
            "--golden is not for --in-service: its host can be busy; --baseline compares each with itself"
        )


def _chosen_size(options: dict[str, Any]) -> "Size | None":
    if options["real_nodes"] is not None:
        return Size(options["real_nodes"], _gpus(options).count)
    if options["size"] is not None or options["site"] is None:
        size: Size | None = options["size"]
        return size
    from validation.run.session import chosen_size

    return chosen_size(_settings(options))


def _gpus(options: dict[str, Any]) -> "Gpus":
    """Return the GPUs of each real node. Raises UsageError."""
    from musterlab.gpus.models import parse

    return parse(options["gpus"] or GPUS, "device-plugin")


def _chosen_hosts(options: dict[str, Any]) -> "SiteHosts | None":
    from validation.run.session import site_hosts

    return site_hosts(_settings(options))


def _run(scenarios: "list[LoadedScenario]", options: dict[str, Any]) -> "tuple[Report, Path]":
    # a lab's site file is read by the package of the extra `deployment`
    require_extra("validation", *(["deployment"] if options["target"] == LAB else []))
    from validation.harness.pytest_run import run
    from validation.run.first_result import prepare_lab

    nodes = _real_nodes(options)
    reporter = terminal_reporter()
    settings = _settings(options)
    settings.real_nodes, settings.progress = nodes, reporter
    reporter(f"{len(scenarios)} scenarios, {len(plan(scenarios))} checks, target: {settings.kind}")
    try:
        if settings.target == LAB:
            prepare_lab(_same_choice(options), reporter)
        if nodes is not None:
            nodes.prepare(reporter)
        return run([str(scenario.path) for scenario in scenarios], settings)
    finally:
        reporter.close()


def _same_choice(options: dict[str, Any]) -> list[str]:
    """Return the command line arguments that choose the same scenarios and parts in another run."""
    named = [
        ("--scenarios", options["paths"]),
        ("--scenario", options["patterns"]),
        ("--part", options["parts"]),
    ]
    return [text for option, values in named for value in values for text in (option, str(value))]


def _number(factor: float) -> float:
    """Return the factor. `nan` passes every comparison of the range, so it is refused here."""
    if math.isnan(factor):
        raise click.BadParameter("nan is no number")
    return factor


def _settings(options: dict[str, Any]) -> "Settings":
    from validation.run.session import Settings

    return Settings(
        target=options["target"],
        kubeconfig=options["kubeconfig"],
        out=options["out"],
        profile=options["profile"],
        parts=options["parts"],
        waivers=options["waivers"],
        patience_percent=round(options["patience"] * 100),
        fail_fast=options["fail_fast"],
        size=options["size"],
        site=options["site"],
        host_tests=options["host_tests"],
        mounts=options["mounts"],
        golden=options["golden"],
        baseline=options["baseline"],
        in_service=options["in_service"],
        argv=["muster", *sys.argv[1:]],
    )


def _real_nodes(options: dict[str, Any]) -> "RealNodes | None":
    """Return the real nodes of the lab, None for simulated ones. Raises before anything is started."""
    if options["real_nodes"] is None:
        return None
    from validation.targets.real_lab import RealNodes, find_image

    return RealNodes(options["real_nodes"], _gpus(options), find_image(options["image"]))


def _print_plan(
    acceptance: "Acceptance", scenarios: "list[LoadedScenario]", hosts: "SiteHosts | None", *, as_json: bool
) -> None:
    checks = plan(scenarios)
    if as_json:
        proven = acceptance.catalogue.proven_by
        lines = [{"id": check.id, "title": check.title, "requirements": proven(check.id)} for check in checks]
        click.echo(json.dumps(lines, indent=1))
        return
    site, images = (hosts.scope.site, hosts.images) if hosts is not None else (None, NO_MAP)
    click.echo(document(acceptance, checks, site, images))


def _print_summary(report: "Report", directory: Path, *, as_json: bool) -> None:
    if as_json:
        summary = {
            "verdict": report.verdict,
            "acceptance": report.acceptance,
            "headline": report.headline,
            "summary": report.summary,
            "report": str(directory),
            "steps": {step.id: step.verdict for step in report.steps},
        }
        click.echo(json.dumps(summary, indent=1))
        return
    from validation.report.conclusion import conclusion

    lines = [report.headline, report.summary, f"report: {directory / 'report.html'}"]
    click.echo("\n".join(printable(line) for line in [*lines, *conclusion(report, directory)]))
