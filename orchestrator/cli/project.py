"""`muster project`: the projects of the cluster, and which of them is the default."""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from orchestrator.cli import project_security
from orchestrator.cli.cluster_names import completing
from orchestrator.cli.options import Command, Group
from orchestrator.cli.output import document, fact_lines, no_headers_option, output_option, show, table
from orchestrator.cli.session import run
from orchestrator.cluster.gpu_fraction import format_gpu, gpu_milli
from orchestrator.cluster.objects import (
    AmountSpec,
    GpuModelSpec,
    GpuSpec,
    NodeAffinity,
    Project,
    ProjectSpec,
    SecuritySpec,
    Subject,
)
from orchestrator.cluster.quantity import cpu_milli, memory_bytes
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import UsageError
from orchestrator.submit.name_rules import is_object_name
from orchestrator.submit.parsing import (
    parse_count,
    parse_node_type,
    parse_project_name,
)

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient

HEADER: Final = ("PROJECT", "DEPARTMENT", "DESERVED GPUs", "INT LIMIT", "INT AFFINITY", "TRAIN AFFINITY")
WIDE_HEADER: Final = (*HEADER, "GPU LIMIT", "ALLOCATED GPUs", "FAIR SHARE", "PENDING JOBS", "NAMESPACE")

_MODEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_GPUS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")

_SPEC_OPTIONS: Final = (
    click.option("--limit", metavar="GPUS", help="Maximum number of GPUs, borrowed ones included."),
    click.option(
        "--over-quota-weight",
        metavar="WEIGHT",
        help="Weight in the distribution of unused GPUs; default: the quota.",
    ),
    click.option(
        "--gpu-model-quota",
        multiple=True,
        metavar="MODEL=GPUS",
        help="Number of GPUs of this model in the quota (Tesla-V100-SXM2-32GB=4). Repeatable.",
    ),
    click.option(
        "--gpu-model-limit",
        multiple=True,
        metavar="MODEL=GPUS",
        help="Maximum number of GPUs of this model. Repeatable.",
    ),
    click.option("--cpu", metavar="CPUS", help="Quota of CPUs; default: not managed."),
    click.option("--cpu-limit", metavar="CPUS", help="Maximum number of CPUs."),
    click.option("--memory", metavar="BYTES", help="Quota of memory, for example 512Gi."),
    click.option("--memory-limit", metavar="BYTES", help="Maximum amount of memory."),
    click.option(
        "--storage", metavar="BYTES", help="Maximum size of all volumes together, for example 10Ti."
    ),
    click.option(
        "--preempt-min-runtime",
        metavar="DURATION",
        help="Minimum run time of a job before another job of the project can preempt it (10m).",
    ),
    click.option(
        "--reclaim-min-runtime",
        metavar="DURATION",
        help="Minimum run time of a job before another project can reclaim its GPUs (10m).",
    ),
    click.option("--priority", type=int, metavar="N", help="Projects of higher priority are served first."),
    click.option("--parent", metavar="PROJECT", help="The department that the project belongs to."),
    click.option("--train-node-type", multiple=True, metavar="TYPE", help="Nodes for training; repeatable."),
    click.option(
        "--interactive-node-type",
        multiple=True,
        metavar="TYPE",
        help="Nodes for interactive jobs; repeatable.",
    ),
    click.option(
        "--interactive-time-limit",
        metavar="DURATION",
        help="Time after which the operator stops an interactive job, for example 12h.",
    ),
    click.option(
        "--member",
        multiple=True,
        metavar="KIND:NAME",
        help="user:NAME or group:NAME. Repeatable; the new list replaces all members.",
    ),
    click.option(
        "--image-pull-secret",
        multiple=True,
        metavar="NAME",
        help="Secret of the project's namespace for the images of all its pods. Repeatable.",
    ),
    *project_security.OPTIONS,
)


def _with_spec_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SPEC_OPTIONS):
        function = option(function)
    return function


@click.group("project", cls=Group, no_args_is_help=True)
def project() -> None:
    """Create, list, change and delete projects; choose the default one."""


@project.command("create", cls=Command, no_args_is_help=True)
@click.argument("name")
@click.option("-g", "--gpu", required=True, metavar="QUOTA", help="Quota of GPUs.")
@_with_spec_options
@click.option("--no-wait", is_flag=True, default=None, help="Do not wait for the project's namespace.")
def create(*, name: str, no_wait: bool | None, **values: Any) -> None:
    """Create a project."""
    parse_project_name(name)
    spec = spec_of(ProjectSpec(), values)
    namespace = run(lambda client: client.create_project(name, spec, wait=not no_wait))
    where = f" in namespace {namespace}" if namespace else ""
    click.echo(f"Project {name} has been created{where}")


@project.command("update", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("projects"))
@click.option("-g", "--gpu", metavar="QUOTA", help="Quota of GPUs; +4 or -4 changes it.")
@_with_spec_options
def update(*, name: str, **values: Any) -> None:
    """Change the given values of a project. An empty text removes a value."""

    async def change(client: "AsyncClient") -> None:
        before = (await client.get_project(name)).spec
        after = spec_of(before, values)
        await client.update_project(name, difference(before, after), after)

    run(change)
    click.echo(f"Project {name} has been updated")


@project.command("set", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("projects"))
def set_default(*, name: str) -> None:
    """Make a project the default: set its namespace in the kubeconfig's context."""
    choose_project(name)


@project.command("list", cls=Command)
@no_headers_option()
@output_option()
def list_projects(*, no_headers: bool | None, output: str | None) -> None:
    """List the projects."""
    show_projects(output=output, no_headers=no_headers)


def choose_project(name: str) -> None:
    """Make a project the default, and say so."""
    run(lambda client: client.set_default_project(name))
    click.echo(f"Project {name} has been set as default project")


def show_projects(*, output: str | None, no_headers: bool | None) -> None:
    """Print all projects."""

    async def read(client: "AsyncClient") -> tuple[list[Project], str]:
        return await client.list_projects(), await client.default_project() or ""

    projects, default = run(read)
    wide = output == "wide"
    show(
        WIDE_HEADER if wide else HEADER,
        [row(item, default, wide=wide) for item in projects],
        output=output,
        no_headers=no_headers,
        records=lambda: [_record(item, default) for item in projects],
        names=[item.metadata.name for item in projects],
    )


def show_project(name: str, *, output: str | None) -> None:
    """Print one project."""

    async def read(client: "AsyncClient") -> tuple[Project, str]:
        return await client.get_project(name), await client.default_project() or ""

    target, default = run(read)
    if output in ("json", "yaml"):
        click.echo(document(_record(target, default), output))
    elif output == "name":
        click.echo(target.metadata.name)
    elif output == "wide":
        click.echo(table(WIDE_HEADER, [row(target, default, wide=True)]))
    else:
        click.echo(_details(target, default))


@project.command("delete", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("projects"))
@click.option("--force", is_flag=True, default=None, help="Delete the project with its jobs.")
def delete(*, name: str, force: bool | None) -> None:
    """Delete a project that has no jobs."""
    run(lambda client: client.delete_project(name, force=bool(force)))
    click.echo(f"Project {name} has been deleted")


def spec_of(before: ProjectSpec, values: Mapping[str, Any]) -> ProjectSpec:
    """Return the specification with the given values. Raises UsageError."""
    changes_by_option = {key: value for key, value in values.items() if value not in (None, ())}
    gpu = {
        field: _changed_gpus(flag, changes_by_option[key], getattr(before.gpu, field))
        for key, field, flag in (
            ("gpu", "quota", "-g/--gpu"),
            ("limit", "limit", "--limit"),
            ("over_quota_weight", "over_quota_weight", "--over-quota-weight"),
        )
        if key in changes_by_option
    }
    gpu |= _models(before.gpu, changes_by_option)
    affinity = {
        field: [
            parse_node_type(f"--{field}-node-type", kind)
            for kind in changes_by_option[f"{field}_node_type"]
            if kind
        ]
        for field in ("train", "interactive")
        if f"{field}_node_type" in changes_by_option
    }
    changes: dict[str, Any] = {
        "gpu": msgspec.structs.replace(before.gpu, **gpu),
        "node_affinity": msgspec.structs.replace(before.node_affinity, **affinity),
        "security": project_security.security(before.security, changes_by_option),
    }
    for kind, convert in (("cpu", cpu_milli), ("memory", memory_bytes)):
        amounts = {
            field: _amount(f"--{key.replace('_', '-')}", changes_by_option[key], convert)
            for key, field in ((kind, "quota"), (f"{kind}_limit", "limit"))
            if key in changes_by_option
        }
        if amounts:
            changes[kind] = msgspec.structs.replace(getattr(before, kind), **amounts)
    if "storage" in changes_by_option:
        changes["storage"] = _amount("--storage", changes_by_option["storage"], memory_bytes)
    for key in ("preempt_min_runtime", "reclaim_min_runtime", "interactive_time_limit"):
        if key in changes_by_option:
            parse_duration_seconds(f"--{key.replace('_', '-')}", changes_by_option[key] or None)
            changes[key] = changes_by_option[key] or None
    if "priority" in changes_by_option:
        changes["priority"] = parse_count("--priority", changes_by_option["priority"], -(2**31))
    if "parent" in changes_by_option:
        changes["parent"] = (
            parse_project_name(changes_by_option["parent"]) if changes_by_option["parent"] else None
        )
    if "member" in changes_by_option:
        changes["members"] = [_member(text) for text in changes_by_option["member"] if text]
    if "image_pull_secret" in changes_by_option:
        names = [name for name in changes_by_option["image_pull_secret"] if name]
        if wrong := next((name for name in names if not is_object_name(name)), ""):
            raise UsageError(f"--image-pull-secret {wrong!r} is not the name of a secret")
        changes["image_pull_secrets"] = names
    return msgspec.structs.replace(before, **changes)


def _models(before: GpuSpec, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds for GPU models after the given changes. `MODEL=` removes the bounds of a model."""
    models = dict(before.models)
    for field in ("quota", "limit"):
        flag = f"--gpu-model-{field}"
        for text in options.get(f"gpu_model_{field}", ()):
            name, equals, amount = text.partition("=")
            if not equals or not _MODEL.fullmatch(name):
                raise UsageError(f"{flag} {text!r} is not possible: give MODEL=GPUS, as nodes are labelled")
            changed = msgspec.structs.replace(
                models.get(name, GpuModelSpec()), **{field: _gpus(flag, amount)}
            )
            models[name] = changed
    models = {name: bounds for name, bounds in sorted(models.items()) if bounds != GpuModelSpec()}
    return {} if models == before.models else {"models": models}


def _gpus(flag: str, text: str) -> Decimal | None:
    if not text and flag != "-g/--gpu":
        return None
    if not _GPUS.fullmatch(text):
        raise UsageError(
            f"{flag} {text!r} is not possible: give a number of GPUs from 0 up with at most three decimals"
        )
    return Decimal(format_gpu(gpu_milli(text)))


def _changed_gpus(flag: str, text: str, before: Decimal | None) -> Decimal | None:
    """Return the GPUs that the text gives: an amount, or `+4` or `-4` to change the previous value."""
    if text[:1] not in ("+", "-"):
        return _gpus(flag, text)
    change = _gpus(flag, text[1:])
    if before is None or change is None:
        raise UsageError(
            f"{flag} {text!r} is not possible: there is no value to change; give the number itself"
        )
    after = before + change if text[0] == "+" else before - change
    if after < 0:
        raise UsageError(f"{flag} {text!r} is not possible: the value is {format_gpu(gpu_milli(before))}")
    return _gpus(flag, format_gpu(gpu_milli(after)))


def _amount(flag: str, text: str, convert: Callable[[str], int]) -> str | None:
    if not text:
        return None
    try:
        amount = convert(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not an amount: give a number such as 2, 500m or 4Gi") from error
    if amount < 0:
        raise UsageError(f"{flag} {text!r} is not possible: it must be 0 or more")
    return text


def _member(text: str) -> Subject:
    kind, _, name = text.partition(":")
    if kind.lower() not in ("user", "group") or not name:
        raise UsageError(f"--member {text!r} is not possible: give user:NAME or group:NAME")
    return Subject(kind=kind.capitalize(), name=name)


def difference(before: ProjectSpec, after: ProjectSpec) -> dict[str, Any]:
    """Return the merge patch between two specifications, as in the API; None removes a value."""
    patch: dict[str, Any] = {}
    for name, wire_name in zip(after.__struct_fields__, after.__struct_encode_fields__, strict=True):
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(new, GpuSpec | AmountSpec | NodeAffinity | SecuritySpec):
            patch[wire_name] = {
                inner_wire: _inner(getattr(old, inner), getattr(new, inner))
                for inner, inner_wire in zip(new.__struct_fields__, new.__struct_encode_fields__, strict=True)
                if getattr(old, inner) != getattr(new, inner)
            }
        else:
            patch[wire_name] = new
    return patch


def _inner(old: Any, new: Any) -> Any:
    """Return the merge patch of one value. In a mapping, it has None for each removed key."""
    if not isinstance(new, dict):
        return new
    removed: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    return removed | {
        name: {field: getattr(value, field) for field in value.__struct_fields__}
        for name, value in new.items()
    }


def row(target: Project, default: str, *, wide: bool = False) -> Sequence[str]:
    """Return the cells of one project."""
    spec, name, status = target.spec, target.metadata.name, target.status
    cells = (
        f"{name} (default)" if name == default else name,
        spec.parent or "-",
        format_gpu(gpu_milli(spec.gpu.quota)),
        _go_duration(spec.interactive_time_limit),
        ",".join(spec.node_affinity.interactive) or "-",
        ",".join(spec.node_affinity.train) or "-",
    )
    if not wide:
        return cells
    limit = "-" if spec.gpu.limit is None else format_gpu(gpu_milli(spec.gpu.limit))
    figures = (str(status.allocated_gpu), str(status.fair_share_gpu), str(status.pending_workloads))
    return (*cells, limit, *figures, status.namespace)


def _details(target: Project, default: str) -> str:
    """Return the text of `get project`: every figure of the wide table, then the members."""
    facts = dict(zip(WIDE_HEADER, row(target, default, wide=True), strict=True))
    members = ",".join(f"{member.kind.lower()}:{member.name}" for member in target.spec.members)
    more = {
        "PRIORITY": str(target.spec.priority),
        "PREEMPT MIN RUNTIME": target.spec.preempt_min_runtime or "-",
        "RECLAIM MIN RUNTIME": target.spec.reclaim_min_runtime or "-",
        "STORAGE LIMIT": "-" if target.spec.storage is None else str(target.spec.storage),
        "MEMBERS": members or "-",
        "IMAGE PULL SECRETS": ",".join(target.spec.image_pull_secrets) or "-",
        **project_security.shown(target.spec.security),
        **{
            f"CONDITION {condition.type}": f"{condition.status} {condition.message}".strip()
            for condition in target.status.conditions
        },
    }
    return fact_lines({**facts, **more})


def _go_duration(text: str | None) -> str:
    """Return `12h0m0s` for `12h`, and an unreadable text unchanged.

    Example: `_go_duration("90m")` returns `'1h30m0s'`.
    """
    try:
        seconds = parse_duration_seconds("interactiveTimeLimit", text)
    except UsageError:
        return text or "-"
    if not seconds:
        return "-"
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if hours or minutes else "", f"{seconds % 60}s"]
    return "".join(parts)


def _record(target: Project, default: str) -> dict[str, Any]:
    return {
        "name": target.metadata.name,
        "default": target.metadata.name == default,
        "created": target.metadata.creation_timestamp,
        "spec": msgspec.to_builtins(target.spec),
        "status": msgspec.to_builtins(target.status),
    }
