"""`muster data`: the volumes, snapshots and workspaces of a project."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.data_output import in_scope, record, show_views
from orchestrator.cli.message import say
from orchestrator.cli.options import Command, Group
from orchestrator.cli.output import amount, document, json_option, no_headers_option
from orchestrator.cli.session import FLAGS, naming_flags
from orchestrator.cli.workspace import workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.client.data import Patience
    from orchestrator.client.jobs import Scope
    from orchestrator.submit.datasets import Snapshot, Volume

VOLUME_HEADER: Final = (
    "NAME", "STATUS", "SIZE", "STORAGE CLASS", "ACCESS", "MADE FROM", "CLONES", "SNAPSHOTS", "USED BY",
)  # fmt: skip
SNAPSHOT_HEADER: Final = ("NAME", "STATUS", "VOLUME", "SIZE", "CREATED", "RESTORED TO", "PROBLEM")
ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_MODE_WORDS: Final = dict(zip(ACCESS_MODES, ("RWO", "ROX", "RWX", "RWOP"), strict=True))


@click.group("data", cls=Group, no_args_is_help=True)
def data() -> None:
    """Clone, snapshot and restore the volumes of a project."""


@data.group("volume", cls=Group, no_args_is_help=True)
def volume() -> None:
    """Create, clone, list and delete the volumes of a project: its PersistentVolumeClaims."""


@data.group("snapshot", cls=Group, no_args_is_help=True)
def snapshot() -> None:
    """Take, restore, list and delete snapshots of volumes: VolumeSnapshots."""


def _size_option(**more: Any) -> Callable[[Any], Any]:
    return click.option("--size", metavar="BYTES", **more)


def _class_option(default: str = "that of the source, else the cluster's default") -> Callable[[Any], Any]:
    return click.option("--storage-class", metavar="NAME", help=f"StorageClass; default: {default}.")


def _waiting(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option(),
        click.option("--timeout", metavar="DURATION", help="Maximum time to wait; default: 5m."),
        click.option("--no-wait", is_flag=True, default=None, help="Do not wait until it is ready."),
    ):
        function = option(function)
    return function


data.add_command(workspace)


@volume.command("create", cls=Command, no_args_is_help=True)
@click.argument("name")
@_size_option(required=True, help="Size, for example 100Gi. The claim requests exactly this number of bytes.")
@_class_option("the cluster's default")
@click.option(
    "--access-mode",
    "access_modes",
    multiple=True,
    type=click.Choice(ACCESS_MODES),
    help="Access mode; default: ReadWriteOnce (pods of one node). Repeatable.",
)
@_waiting
def create_volume(
    *,
    name: str,
    size: str,
    storage_class: str | None,
    access_modes: tuple[str, ...],
    no_wait: bool | None,
    timeout: str | None,
    as_json: bool | None,
) -> None:
    """Create an empty volume."""
    from orchestrator.submit.datasets import NewVolume

    wait = _patience(no_wait, timeout)
    new = NewVolume(name, _bytes(size), storage_class, access_modes or ACCESS_MODES[:1])
    volume, scope = in_scope(lambda client, scope: client.data.create_volume(scope, new, wait))
    _say_volume(volume, scope, "created", as_json)


@volume.command("clone", cls=Command, no_args_is_help=True)
@click.argument("source", shell_complete=completing("volumes"))
@click.argument("name")
@_size_option(help="Size of the clone; default: the size of the source.")
@_class_option()
@_waiting
def clone_volume(
    *,
    source: str,
    name: str,
    size: str | None,
    storage_class: str | None,
    no_wait: bool | None,
    timeout: str | None,
    as_json: bool | None,
) -> None:
    """Create a volume with the data of another volume of the project."""
    size_bytes, wait = _bytes(size), _patience(no_wait, timeout)
    volume, scope = in_scope(
        lambda client, scope: client.data.clone_volume(
            scope, source, name, wait, size_bytes=size_bytes, storage_class=storage_class
        )
    )
    _say_volume(volume, scope, f"cloned from {source}", as_json)


@volume.command("list", cls=Command)
@no_headers_option()
@json_option()
def list_volumes(*, no_headers: bool | None, as_json: bool | None) -> None:
    """List the volumes with their sizes, their sources and the pods that use them."""
    volumes, scope = in_scope(lambda client, scope: client.data.volumes(scope))
    show_views(volumes, scope, VOLUME_HEADER, _volume_row, no_headers=no_headers, as_json=as_json)


@volume.command("delete", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("volumes"))
@click.option(
    "--force", is_flag=True, default=None, help="Delete it even if clones or snapshots of it remain."
)
def delete_volume(*, name: str, force: bool | None) -> None:
    """Delete a volume that no pod uses and that has no clones and no snapshots."""
    in_scope(lambda client, scope: client.data.delete_volume(scope, name, force=bool(force)))
    click.echo(f"Volume {name} has been deleted")


@snapshot.command("create", cls=Command, no_args_is_help=True)
@click.argument("volume_name", metavar="VOLUME", shell_complete=completing("volumes"))
@click.argument("name")
@click.option("--snapshot-class", metavar="NAME", help="VolumeSnapshotClass; default: the driver's default.")
@_waiting
def create_snapshot(
    *,
    volume_name: str,
    name: str,
    snapshot_class: str | None,
    no_wait: bool | None,
    timeout: str | None,
    as_json: bool | None,
) -> None:
    """Take a snapshot of a volume."""
    wait = _patience(no_wait, timeout)
    taken, scope = in_scope(
        lambda client, scope: client.data.create_snapshot(
            scope, volume_name, name, wait, snapshot_class=snapshot_class
        )
    )
    text = f"Snapshot {name} of volume {volume_name} has been created ({taken.status})"
    click.echo(document(record(taken, scope), "json") if as_json else text)


@snapshot.command("restore", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("snapshots"))
@click.argument("target", required=False, metavar="[VOLUME]")
@click.option(
    "--replace",
    "replace_volume",
    is_flag=True,
    default=None,
    help="Replace VOLUME; its present data is lost. Default for VOLUME: the source of the snapshot.",
)
@_size_option(
    help="Size of the volume; default: the size of the replaced volume, but at least that of the snapshot."
)
@_class_option()
@_waiting
def restore_snapshot(
    *,
    name: str,
    target: str | None,
    replace_volume: bool | None,
    size: str | None,
    storage_class: str | None,
    no_wait: bool | None,
    timeout: str | None,
    as_json: bool | None,
) -> None:
    """Restore a snapshot to a new volume or, with --replace, to an existing volume that no pod uses."""
    if target is None and not replace_volume:
        raise click.UsageError("the new volume is missing: give its name, or --replace")
    size_bytes, wait = _bytes(size), _patience(no_wait, timeout)
    volume, scope = in_scope(
        lambda client, scope: client.data.restore_snapshot(
            scope,
            name,
            target,
            wait,
            replace_volume=bool(replace_volume),
            size_bytes=size_bytes,
            storage_class=storage_class,
        )
    )
    _say_volume(volume, scope, f"restored from snapshot {name}", as_json)


@snapshot.command("list", cls=Command)
@no_headers_option()
@json_option()
def list_snapshots(*, no_headers: bool | None, as_json: bool | None) -> None:
    """List the snapshots and the volumes that were restored from them."""
    snapshots, scope = in_scope(lambda client, scope: client.data.snapshots(scope))
    show_views(snapshots, scope, SNAPSHOT_HEADER, _snapshot_row, no_headers=no_headers, as_json=as_json)


@snapshot.command("delete", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("snapshots"))
@click.option("--force", is_flag=True, default=None, help="Delete it even if volumes were restored from it.")
def delete_snapshot(*, name: str, force: bool | None) -> None:
    """Delete a snapshot from which no volume was restored."""
    in_scope(lambda client, scope: client.data.delete_snapshot(scope, name, force=bool(force)))
    click.echo(f"Snapshot {name} has been deleted")


def _bytes(size: str | None) -> int:
    from orchestrator.submit.parsing import parse_memory

    with naming_flags(FLAGS):
        return parse_memory("size_bytes", size)


def _patience(no_wait: bool | None, timeout: str | None) -> Patience:
    from orchestrator.client.data import Patience
    from orchestrator.durations import parse_duration_seconds

    if no_wait and timeout:
        raise click.UsageError("--no-wait and --timeout exclude each other")
    if no_wait:
        return Patience(0)
    default = Patience(report=lambda line: say(line, err=True))
    seconds = parse_duration_seconds("--timeout", timeout)
    return dataclasses.replace(default, seconds=float(seconds)) if seconds else default


def _say_volume(volume: Volume, scope: Scope, done: str, as_json: bool | None) -> None:
    text = f"Volume {volume.name} has been {done} ({amount(volume.size_bytes)}, {volume.status})"
    click.echo(document(record(volume, scope), "json") if as_json else text)


def _volume_row(volume: Volume) -> Sequence[str]:
    return (
        volume.name,
        volume.status,
        amount(volume.size_bytes),
        volume.storage_class or "",
        ",".join(_MODE_WORDS.get(mode, mode) for mode in volume.access_modes),
        f"{_KIND_WORDS[volume.source.kind]} {volume.source.name}" if volume.source else "",
        ",".join(volume.clones),
        ",".join(volume.snapshots),
        ",".join(volume.used_by),
    )


def _snapshot_row(snapshot: Snapshot) -> Sequence[str]:
    return (
        snapshot.name,
        snapshot.status,
        snapshot.volume,
        amount(snapshot.size_bytes),
        snapshot.created_at,
        ",".join(snapshot.restored),
        snapshot.problem,
    )


_KIND_WORDS: Final = {"PersistentVolumeClaim": "volume", "VolumeSnapshot": "snapshot"}
