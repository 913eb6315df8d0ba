"""`muster lab`: build, up, down, status, env, storage and gpu."""

import json
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from musterlab import binaries, profiles, programs
from musterlab import build as building
from musterlab.errors import LabNotFound
from musterlab.gpus import built, models
from musterlab.gpus.command import gpu
from musterlab.options import errors_as_lines, lab_options
from musterlab.realnodes.requirements import MAXIMUM_NODES
from orchestrator.errors import UsageError
from orchestrator.progress import terminal_reporter

if TYPE_CHECKING:
    from musterlab.cluster import Lab


@click.group()
def lab() -> None:
    """Run a real Kubernetes control plane with simulated or real DGX nodes on this machine."""


@lab.command()
@lab_options
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    help="Number of simulated nodes.  [default: 2, or 0 with real nodes]",
)
@click.option(
    "--real-nodes",
    type=click.IntRange(0, MAXIMUM_NODES),
    default=0,
    show_default=True,
    help="Number of real nodes, which run containers with a kubelet and containerd. Needs root.",
)
@click.option(
    "--profile",
    help=f"Profile of the nodes: a name or a YAML file.  [default: {profiles.DEFAULT_PROFILE}, "
    "or the one with the GPUs]",
)
@click.option(
    "--image",
    "image_archives",
    multiple=True,
    metavar="ARCHIVE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="OCI archive whose images the real nodes can pull, such as that of `make image`. Repeatable.",
)
@click.option(
    "--gpus",
    metavar="MODELxN",
    help="GPUs of each real node, by NVIDIA's device plugin or a DRA driver: v100x8 (DGX-1), a100x8, h100x8, or fewer.",
)
@click.option(
    "--gpu-programs",
    "program_folder",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help=f"Folder with NVIDIA's DRA driver.  [default: the value of {programs.FOLDER_VARIABLE}]",
)
@click.option(
    "--gpu-stack",
    type=click.Choice(models.STACKS),
    default="device-plugin",
    show_default=True,
    help="How the kubelet learns of the GPUs.",
)
@click.option(
    "--consumable-shares",
    help="Shares of a GPU that NVIDIA's DRA driver offers to claims: memory, unlimited, disabled, or "
    "a number."
    "[default: memory; disabled with the example driver]",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API server.  [default: a free one]")
@click.option("--json", "as_json", is_flag=True, help="Print the lab as JSON.")
@errors_as_lines
def up(
    *,
    name: str,
    state_dir: Path | None,
    nodes: int | None,
    real_nodes: int,
    profile: str | None,
    image_archives: tuple[Path, ...],
    gpus: str | None,
    gpu_stack: models.Stack,
    program_folder: Path | None,
    consumable_shares: str | None,
    port: int | None,
    as_json: bool,
) -> None:
    """Start a lab and leave it running. The first start fetches or builds missing programs."""
    from musterlab import cluster

    if program_folder is not None and gpus is None:
        raise UsageError("--gpu-programs is for labs with GPUs: give --gpus, such as --gpus v100x8")
    devices = models.parse(gpus, gpu_stack, consumable_shares, program_folder) if gpus else None
    reporter = terminal_reporter()
    if nodes is None:
        nodes = 0 if real_nodes else 2
    if profile is None:
        profile = devices.node_profile if devices else profiles.DEFAULT_PROFILE
    try:
        started = cluster.start(
            name, nodes=nodes, profile=profile, port=port, detach=True, state_dir=state_dir,
            progress=reporter, real_nodes=real_nodes, image_archives=image_archives, gpus=devices,
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
@click.option("--real-nodes", is_flag=True, help="Also build the programs of real nodes.")
@click.option("--gpus", is_flag=True, help="Also build the programs that --gpus of 'up' needs.")
@click.option(
    "--lowest-kubernetes",
    is_flag=True,
    help="Also build a control plane of the lowest Kubernetes that muster runs with. To start a lab with "
    "it, set KUBEBUILDER_ASSETS to its directory.",
)
@click.option(
    "--newest-kubernetes", is_flag=True, help="Also build a control plane of the newest Kubernetes, likewise."
)
@errors_as_lines
def build(*, real_nodes: bool, gpus: bool, lowest_kubernetes: bool, newest_kubernetes: bool) -> None:
    """Find the programs of the control plane, or fetch or build them. `up` does this by itself."""
    reporter = terminal_reporter()
    recipes = [building.CONTROL_PLANE, *([building.REAL_NODES] if real_nodes else [])]
    if gpus:
        recipes += [built.GPU_PROGRAMS, built.EXAMPLE_PROGRAMS]
    if lowest_kubernetes:
        recipes.append(building.LOWEST_CONTROL_PLANE)
    if newest_kubernetes:
        recipes.append(building.NEWEST_CONTROL_PLANE)
    try:
        program_sets = [binaries.find(reporter, needed) for needed in recipes]
    finally:
        reporter.close()
    for found in program_sets:
        click.echo(f"{len(found.paths)} programs, from {found.source}: {found.directory}")
    if gpus and (why := programs.missing((programs.DRA_DRIVER,))):
        click.echo(f"not here: NVIDIA's DRA driver; {why}")


@lab.command()
@lab_options
@errors_as_lines
def down(name: str, state_dir: Path | None) -> None:
    """Stop a lab and remove its files. Without such a lab, the command does nothing."""
    from musterlab import cluster

    try:
        existing = cluster.find(name, state_dir)
    except LabNotFound:
        click.echo(f"there is no lab {name!r}")
        return
    existing.stop()
    click.echo(f"lab {name!r} is gone")


@lab.command()
@lab_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@errors_as_lines
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
        for role, program in described["gpu_programs"].items():
            click.echo(f"  {role}: {program}")
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
@lab_options
@errors_as_lines
def env(name: str, state_dir: Path | None) -> None:
    """Print the environment of a lab for a shell: eval "$(muster lab env)"."""
    from musterlab import cluster

    existing = cluster.find(name, state_dir)
    click.echo(f"export KUBECONFIG={shlex.quote(str(existing.kubeconfig))}")
    click.echo(f"export PATH={shlex.quote(str(existing.kubectl_directory))}:$PATH")


@lab.command()
@lab_options
@errors_as_lines
def storage(name: str, state_dir: Path | None) -> None:
    """Serve volumes, clones and snapshots to the real nodes of a lab, until interrupted. Programs are built once.

    The lab's own CSI driver makes the volumes, beside Kubernetes' external-provisioner and external-snapshotter. Its
    class `lab` is the default class. All nodes share the volumes. The volumes stay with the lab. Pods can mount them
    while this command runs.
    """
    from musterlab import cluster
    from musterlab.storage import serving

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM, too, removes the temporary files
    reporter = terminal_reporter()
    try:
        with serving.storage(cluster.find(name, state_dir), reporter):
            threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("storage is served no longer", err=True)
    finally:
        reporter.close()


lab.add_command(gpu)


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
        "gpus": existing.record.gpus,
        "gpu_programs": dict(existing.record.gpu_programs),
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
