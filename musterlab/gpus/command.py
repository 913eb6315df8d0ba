"""`muster lab gpu`: the state of the GPUs of a running lab."""

import dataclasses
import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from musterlab.options import errors_as_lines, lab_options
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from musterlab.gpus.live import NodeGpus, Process

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _on_a_node(function: _Command) -> Callable[..., None]:
    """Return a command that calls the function with the GPUs of the chosen node, and with the other options."""

    @lab_options
    @click.option("--node", help="Name of the node; needed if several have GPUs.")
    @errors_as_lines
    @wraps(function)
    def command(*, name: str, state_dir: Path | None, node: str | None, **arguments: Any) -> None:
        from musterlab import cluster
        from musterlab.gpus.live import NodeGpus

        function(NodeGpus(cluster.find(name, state_dir), node), **arguments)

    return command


_GPU = click.argument("gpu", metavar="GPU")


@click.group()
def gpu() -> None:
    """Change the state of the GPUs of real nodes. A GPU is its index, its UUID, or 'all'.

    Every process that asks the driver's library sees the change: device plugin, DRA driver, agents, containers.
    """


@gpu.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@_on_a_node
def status(gpus: "NodeGpus", *, as_json: bool) -> None:
    """Show the GPUs of a node and their changes."""
    states = gpus.states()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(state) for state in states]))
        return
    for state in states:
        click.echo(
            f"{state.index}  {state.uuid}  {json.dumps(state.changes) if state.changes else ''}".rstrip()
        )


@gpu.command()
@_GPU
@click.option("--utilization", "utilization_percent", type=click.IntRange(0, 100), help="In percent.")
@click.option(
    "--process", "processes", multiple=True, metavar="PID:NAME:MIB", help="Holds memory. Repeatable."
)
@_on_a_node
def use(gpus: "NodeGpus", *, gpu: str, utilization_percent: int | None, processes: tuple[str, ...]) -> None:
    """Show a GPU as busy, and show exactly these processes as users of its memory."""
    gpus.use(gpu, utilization_percent, [_process(written) for written in processes])


@gpu.command()
@_GPU
@click.argument("count", type=click.IntRange(min=0))
@_on_a_node
def ecc(gpus: "NodeGpus", *, gpu: str, count: int) -> None:
    """Show COUNT uncorrectable ECC errors on a GPU."""
    gpus.set_ecc_errors(gpu, count)


@gpu.command()
@_GPU
@click.argument("code", type=click.IntRange(min=1))
@_on_a_node
def xid(gpus: "NodeGpus", *, gpu: str, code: int) -> None:
    """Let the driver report the error CODE once."""
    gpus.send_xid(gpu, code)


@gpu.command()
@_GPU
@_on_a_node
def lose(gpus: "NodeGpus", *, gpu: str) -> None:
    """Make a GPU fall off the bus (XID 79): it answers no query until 'restore'."""
    gpus.lose(gpu)


@gpu.command("set")
@_GPU
@click.argument("changes", nargs=-1, required=True, metavar="FIELD=VALUE...")
@_on_a_node
def change(gpus: "NodeGpus", *, gpu: str, changes: tuple[str, ...]) -> None:
    """Change numbers of a GPU, such as temperature=85 power=250000.

    Fields: memory_total, memory_reserved, memory_used (bytes); utilization, memory_utilization (percent); temperature
    (Celsius); power (milliwatts); sm_clock, memory_clock (MHz); ecc_corrected, ecc_uncorrected.
    """
    gpus.set(gpu, dict(map(_field, changes)))


@gpu.command()
@_GPU
@_on_a_node
def restore(gpus: "NodeGpus", *, gpu: str) -> None:
    """Undo all changes of a GPU."""
    gpus.restore(gpu)


@gpu.command("restart-plugin")
@_on_a_node
def restart_plugin(gpus: "NodeGpus") -> None:
    """Restart the device plugin or DRA driver. After 'restore', it offers the GPUs again that it had given up."""
    gpus.restart_plugin()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) < 1 << 31


def _field(written: str) -> tuple[str, int]:
    name, _, value = written.partition("=")
    if not (value.isascii() and value.isdecimal() and int(value) < 1 << 63):
        raise UsageError(f"{written!r}: give FIELD=NUMBER, such as temperature=85")
    return name, int(value)


def _process(written: str) -> "Process":
    from musterlab.gpus.live import Process

    pid, _, rest = written.partition(":")
    name, _, memory = rest.rpartition(":")
    if not (_is_number(pid) and name.strip() and name.isprintable() and _is_number(memory)):
        raise UsageError(f"process {written!r}: give PID:NAME:MIB, such as 4242:python:10240")
    return Process(int(pid), name, int(memory))
