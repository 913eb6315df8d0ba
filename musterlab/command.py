"""`muster lab`: build, up, down, status and env."""

import json
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from musterlab import binaries, profiles
from musterlab import build as building
from musterlab.errors import LabNotFound
from musterlab.realnodes.requirements import MAXIMUM_NODES
from orchestrator.distribution import require_extra
from orchestrator.errors import MusterError
from orchestrator.progress import terminal_reporter

if TYPE_CHECKING:
    from musterlab.cluster import Lab

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _lab_options(function: _Command) -> _Command:
    for option in (
        click.option("--name", default="default", show_default=True, help="Name of the lab."),
        click.option(
            "--state-dir",
            type=click.Path(path_type=Path, file_okay=False),
            help="Directory that holds the labs.  [default: $XDG_STATE_HOME/muster/labs]",
        ),
    ):
        function = option(function)
    return function


def _errors_as_lines(function: Callable[..., None]) -> Callable[..., None]:
    """Show an error of ours as one line and its exit code, whichever command line calls the group."""

    @wraps(function)
    def command(*arguments: Any, **options: Any) -> None:
        try:
            require_extra("lab")
            function(*arguments, **options)
        except MusterError as error:
            click.echo(f"Error: {error}", err=True)
            raise SystemExit(error.exit_code) from error

    return command


@click.group()
def lab() -> None:
    """Run a real Kubernetes control plane with simulated or real DGX nodes on this machine."""


@lab.command()
@_lab_options
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    help="How many simulated nodes.  [default: 2, or 0 with real nodes]",
)
@click.option(
    "--real-nodes",
    type=click.IntRange(0, MAXIMUM_NODES),
    default=0,
    show_default=True,
    help="How many nodes with a kubelet and containerd, whose containers truly run. Needs root.",
)
@click.option(
    "--profile",
    default=profiles.DEFAULT_PROFILE,
    show_default=True,
    help="What the nodes are: a profile's name, or a YAML file.",
)
@click.option(
    "--image",
    "image_archives",
    multiple=True,
    metavar="ARCHIVE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="OCI archive whose images the real nodes can pull, such as that of `make image`. Repeatable.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API server.  [default: a free one]")
@click.option("--json", "as_json", is_flag=True, help="Print the lab as JSON.")
@_errors_as_lines
def up(
    *,
    name: str,
    state_dir: Path | None,
    nodes: int | None,
    real_nodes: int,
    profile: str,
    image_archives: tuple[Path, ...],
    port: int | None,
    as_json: bool,
) -> None:
    """Start a lab and leave it running. Programs that are missing are built first, once."""
    from musterlab import cluster

    reporter = terminal_reporter()
    if nodes is None:
        nodes = 0 if real_nodes else 2
    try:
        started = cluster.start(
            name, nodes=nodes, profile=profile, port=port, detach=True, state_dir=state_dir,
            progress=reporter, real_nodes=real_nodes, image_archives=image_archives,
        )  # fmt: skip
    finally:
        reporter.close()
    if as_json:
        click.echo(json.dumps(_lab_record(started)))
        return
    option = "" if name == "default" else f" --name {name}"
    click.echo(f"lab {started.name!r} runs at {started.server}")
    click.echo(f"""use it:  eval "$(muster lab env{option})"    end it:  muster lab down{option}""")


@lab.command()
@click.option("--real-nodes", is_flag=True, help="Those that real nodes need as well.")
@_errors_as_lines
def build(real_nodes: bool) -> None:
    """Find the programs of the control plane, and build them if they are nowhere. `up` does this by itself."""
    reporter = terminal_reporter()
    recipes = [building.CONTROL_PLANE, *([building.REAL_NODES] if real_nodes else [])]
    try:
        program_sets = [binaries.find(reporter, recipe) for recipe in recipes]
    finally:
        reporter.close()
    for programs in program_sets:
        click.echo(f"{len(programs.paths)} programs, from {programs.source}: {programs.directory}")


@lab.command()
@_lab_options
@_errors_as_lines
def down(name: str, state_dir: Path | None) -> None:
    """Stop a lab and remove all that it kept. If there is none, nothing is to be done."""
    from musterlab import cluster

    try:
        existing = cluster.find(name, state_dir)
    except LabNotFound:
        click.echo(f"there is no lab {name!r}")
        return
    existing.stop()
    click.echo(f"lab {name!r} is gone")


@lab.command()
@_lab_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@_errors_as_lines
def status(name: str, state_dir: Path | None, as_json: bool) -> None:
    """Show the processes of a lab. The exit code is 1 unless all of them run."""
    from musterlab import cluster

    existing = cluster.find(name, state_dir)
    described = _lab_record(existing)
    if as_json:
        click.echo(json.dumps(described))
    else:
        click.echo(
            f"lab {name!r} is {described['state']}: {described['server']}, state in {existing.state_directory}"
        )
        for process in described["processes"]:
            rss = f"{process['rss_bytes'] / 2**20:6.0f} MiB" if process["rss_bytes"] else " " * 10
            known = process["exit_status"] is not None
            ending = f"exit status {process['exit_status']}" if known else ""
            click.echo(
                f"  {process['name']:24} {process['state']:8} {rss}  {process['log']}  {ending}".rstrip()
            )
    if described["state"] != "running":
        sys.exit(1)


@lab.command()
@_lab_options
@_errors_as_lines
def env(name: str, state_dir: Path | None) -> None:
    """Print what a shell needs to use a lab: eval "$(muster lab env)"."""
    from musterlab import cluster

    existing = cluster.find(name, state_dir)
    click.echo(f"export KUBECONFIG={shlex.quote(str(existing.kubeconfig))}")
    click.echo(f"export PATH={shlex.quote(str(existing.kubectl_directory))}:$PATH")


def _lab_record(existing: "Lab") -> dict[str, Any]:
    status = existing.status()
    return {
        "name": existing.name,
        "state": status.state,
        "server": existing.server,
        "kubeconfig": str(existing.kubeconfig),
        "context": f"muster-lab-{existing.name}",
        "state_directory": str(existing.state_directory),
        "nodes": [{"profile": profile, "count": count} for profile, count in existing.record.nodes],
        "real_nodes": existing.record.real_nodes,
        "programs": existing.record.programs,
        "supervisor_pid": status.supervisor_pid,
        "processes": [
            {
                "name": process.name,
                "state": process.state,
                "pid": process.pid,
                "exit_status": process.exit_status,
                "rss_bytes": process.rss_bytes,
                "log": str(process.log),
            }
            for process in status.processes
        ],
    }
