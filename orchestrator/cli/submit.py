"""`muster submit`: flags to a Submission, and a Submission to the cluster."""

import getpass
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from orchestrator.cli.options import ARGUMENTS_KEY, TAIL_KEY, Command, Settings, Word, split_words
from orchestrator.cli.output import document
from orchestrator.cli.session import run
from orchestrator.client.jobs import Scope
from orchestrator.cluster.errors import Unreachable
from orchestrator.cluster.quantity import cpu_milli, format_time, memory_bytes
from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.names import NAMESPACE_PREFIX
from orchestrator.workloads import manifest, submission
from orchestrator.workloads.submission import Submission

TAIL_IS_COMMAND_KEY: Final = "muster.tail_is_command"


class SubmitCommand(Command):
    """Understands both generations of `--command`: with a value, or as a switch for what follows `--`."""

    takes_tail = True

    def rewrite(self, ctx: click.Context, args: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
        """Take `--command` for a switch where there is a bare `--`."""
        words, tail = split_words(self, args, without_value=frozenset({"--command"}))
        if tail is None:
            return super().rewrite(ctx, args)
        switches = [word for word in words if word.name == "--command"]
        ctx.meta[TAIL_IS_COMMAND_KEY] = bool(switches) and _is_on(switches[-1], ctx)
        kept = [token for word in words if word.name != "--command" for token in word.tokens]
        return super().rewrite(ctx, kept)[0], tail


def _is_on(switch: Word, ctx: click.Context) -> bool:
    _, equals, value = switch.tokens[0].partition("=")
    if equals and value not in ("true", "false"):
        raise click.UsageError("--command=… and -- both give a command: use one of them", ctx)
    return value != "false"


def _text(*names: str, help: str, **more: Any) -> Callable[..., Any]:  # noqa: A002
    return click.option(*names, help=help, **more)


def _many(*names: str, help: str, **more: Any) -> Callable[..., Any]:  # noqa: A002
    return click.option(*names, multiple=True, help=help, **more)


def _flag(name: str, help: str) -> Callable[..., Any]:  # noqa: A002
    return click.option(name, is_flag=True, default=None, help=help)


def _number(*names: str, help: str) -> Callable[..., Any]:  # noqa: A002
    return click.option(*names, type=int, metavar="N", help=help)


OPTIONS: Final = (
    click.argument("name", required=False),
    _text("--name", "name_option", metavar="NAME", help="The job's name, if not given as an argument."),
    _text("-i", "--image", help="The container image."),
    _text("-g", "--gpu", metavar="GPUS", help="Whole GPUs (2), or a part of one (0.5)."),
    _flag("--interactive", "A job without an end, never stopped for others."),
    _flag("--preemptible", "May be stopped for others, and may use more than the quota."),
    _text(
        "-s",
        "--service-type",
        type=click.Choice(submission.SERVICE_TYPES),
        help="How to reach the job's ports.",
    ),
    _many("--port", metavar="PORT", help="PORT or EXTERNAL:INTERNAL."),
    _many("--command", metavar="TEXT", help="Replaces the image's entry point; once for each word."),
    _many("--args", metavar="TEXT", help="An argument of the command; once for each."),
    _many("-e", "--environment", metavar="NAME=VALUE", help="An environment variable."),
    _many("-v", "--volume", "--volumes", metavar="HOST:PATH[:ro|rw]", help="A directory of the node."),
    _many("--pvc", metavar="CLAIM:PATH[:ro|rw]", help="An existing volume claim."),
    _flag("--large-shm", "Shared memory as large as the job needs."),
    _flag("--local-image", "Use an image that is on the node, and never pull it."),
    _text("--image-pull-policy", type=click.Choice(submission.PULL_POLICIES), help="When to pull the image."),
    _text("--working-dir", metavar="PATH", help="Where the container starts."),
    _text("--cpu", metavar="CPUS", help="Processors to reserve; default: 1 for each GPU."),
    _text("--cpu-limit", metavar="CPUS", help="At most so many processors."),
    _text("--memory", metavar="BYTES", help="Memory to reserve, such as 4Gi; default: 100Mi for each GPU."),
    _text("--memory-limit", metavar="BYTES", help="At most so much memory."),
    _text("--node-type", metavar="TYPE", help="Only nodes whose label run.ai/type has this value."),
    _number("--completions", help="How many pods must succeed."),
    _number("--parallelism", help="How many pods run at once."),
    _number("--min-member", help="How many pods must run together for any to run."),
    _number("--backoff-limit", "--backoffLimit", help="Attempts after a failure; default: 6."),
    _text(
        "--ttl-after-finish", metavar="DURATION", help="Delete the job so long after its end (5s, 2m, 3h)."
    ),
    _text("-u", "--user", help="Who submits; default: the user of this machine."),
    _flag("--host-ipc", "Share the node's interprocess communication."),
    _flag("--host-network", "Share the node's network."),
    _flag("--dry-run", "Print what would be created, and create nothing."),
)


def _with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command(
    cls=SubmitCommand, options_metavar="[OPTIONS]", epilog="What follows -- are the container's arguments."
)
@_with_options
@click.pass_context
def submit(ctx: click.Context, /, *, dry_run: bool | None, **values: Any) -> None:
    """Submit a job.

    A job trains until its end, or is interactive. The scheduler starts it when the project's quota, or GPUs that
    nobody else needs, allow it.
    """
    asked = submission_of(ctx, values)
    submitted_at = format_time(time.time_ns() // 1000)
    if dry_run:
        click.echo(_rendered(asked, _scope_or_guess(ctx), submitted_at))
        return

    scope = run(lambda client: client.submit(asked, submitted_at=submitted_at))
    click.echo(f"The job '{asked.name}' has been submitted successfully")
    click.echo(f"You can run `muster get {asked.name} -p {scope.project}` to check the job status")
    if asked.service_type == "portforward":
        ports = " ".join(f"{port.external}:{port.external}" for port in asked.ports)
        click.echo(
            f"You can run `kubectl port-forward -n {scope.namespace} service/{asked.name} {ports}` to reach it"
        )


def submission_of(ctx: click.Context, values: dict[str, Any]) -> Submission:
    """Return the validated submission of a parsed command line. Raises UsageError."""
    command, args = _container_command(ctx, values)
    return Submission(
        name=_name(values["name"], values["name_option"]),
        image=submission.parse_image(values["image"]),
        user=values["user"] or _operating_system_user(),
        gpu_milli=submission.parse_gpu(values["gpu"]),
        interactive=bool(values["interactive"]),
        preemptible=values["preemptible"],
        service_type=values["service_type"],
        ports=tuple(map(submission.parse_port, values["port"])),
        command=command,
        args=args,
        environment=tuple(map(submission.parse_variable, values["environment"])),
        volumes=tuple(map(submission.parse_volume, values["volume"])),
        claims=tuple(map(submission.parse_claim, values["pvc"])),
        large_shm=bool(values["large_shm"]),
        image_pull_policy=_pull_policy(values),
        working_dir=values["working_dir"],
        cpu=submission.parse_quantity("--cpu", values["cpu"], cpu_milli),
        cpu_limit=submission.parse_quantity("--cpu-limit", values["cpu_limit"], cpu_milli),
        memory=submission.parse_quantity("--memory", values["memory"], memory_bytes),
        memory_limit=submission.parse_quantity("--memory-limit", values["memory_limit"], memory_bytes),
        node_type=submission.parse_node_type("--node-type", values["node_type"]),
        completions=submission.parse_count("--completions", values["completions"], 1),
        parallelism=submission.parse_count("--parallelism", values["parallelism"], 1),
        min_member=submission.parse_count("--min-member", values["min_member"], 1),
        backoff_limit=submission.parse_count("--backoff-limit", values["backoff_limit"], 0),
        ttl_seconds=submission.parse_duration_seconds("--ttl-after-finish", values["ttl_after_finish"]),
        host_ipc=bool(values["host_ipc"]),
        host_network=bool(values["host_network"]),
        command_line=f"{ctx.command_path} {shlex.join(ctx.meta[ARGUMENTS_KEY])}",
    )


def _container_command(ctx: click.Context, values: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    tail: tuple[str, ...] = ctx.meta.get(TAIL_KEY) or ()
    if ctx.meta.get(TAIL_IS_COMMAND_KEY):
        if not tail:
            raise UsageError("--command says that a command follows --, and none does")
        return tail, values["args"]
    return values["command"], (*values["args"], *tail)


def _name(argument: str | None, option: str | None) -> str:
    if argument and option and argument != option:
        raise UsageError(f"the job has two names, {argument!r} and {option!r}: give one")
    return submission.parse_name(option or argument)


def _pull_policy(values: dict[str, Any]) -> str | None:
    policy: str | None = values["image_pull_policy"]
    if not values["local_image"]:
        return policy
    if policy not in (None, "Never"):
        raise UsageError(f"--local-image does not go with --image-pull-policy {policy}: it means Never")
    return "Never"


def _operating_system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise UsageError("-u/--user is needed: this machine has no name for the current user") from error


def _scope_or_guess(ctx: click.Context) -> Scope:
    try:
        return run(lambda client: client.scope())
    except (ConfigurationError, Unreachable) as error:
        project = ctx.ensure_object(Settings).project
        if project is None:
            raise
        namespace = f"{NAMESPACE_PREFIX}{project}"
        click.echo(f"Warning: namespace {namespace} is a guess, the cluster was not asked: {error}", err=True)
        return Scope(project, namespace)


def _rendered(asked: Submission, scope: Scope, submitted_at: str) -> str:
    placement = manifest.Placement(scope.project, scope.namespace, submitted_at)
    resource = manifest.workload_resource(asked)
    owner = manifest.owner_reference(resource, asked.name, "")
    objects = [manifest.workload_manifest(asked, placement)]
    for beside in (manifest.service_manifest, manifest.ingress_manifest):
        made = beside(asked, placement, owner)
        if made is not None:
            del made["metadata"]["ownerReferences"]  # the uid is not known before the workload exists
            objects.append(made)
    return "\n---\n".join(document(each, "yaml") for each in objects)
