"""The flags of `submit`, `submit-mpi` and `submit-dist`, by purpose."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.options import Command, OptionalValue, Word, split_words
from orchestrator.cli.output import output_option
from orchestrator.errors import UsageError
from orchestrator.submit.values import MASTER_PORT, PULL_POLICIES, SERVICE_TYPES

TAIL_IS_COMMAND_KEY: Final = "muster.tail_is_command"
DRY_RUNS: Final = ("client", "server")

FLAGS: Final = {
    "addresses": "--address",
    "after": "--after",
    "annotations": "-a/--annotation",
    "args": "--args",
    "backoff_limit": "--backoff-limit",
    "capabilities": "--add-capability",
    "claims": "--pvc",
    "clones": "--clone-of",
    "code": "--code",
    "command": "--command",
    "completions": "--completions",
    "cpu_limit_milli": "--cpu-limit",
    "cpu_milli": "--cpu",
    "environment": "-e/--environment",
    "environment_file": "--env-file",
    "existing_claims": "--pvc-exists",
    "extended_resources": "--extended-resource",
    "gid": "--run-as-gid",
    "git": "--git-sync",
    "gpu_devices": "--gpu-devices",
    "gpu_memory_bytes": "--gpu-memory",
    "gpu_milli": "-g/--gpu",
    "groups": "--supplemental-groups",
    "home_directory": "--create-home-dir",
    "host_ipc": "--host-ipc",
    "host_network": "--host-network",
    "image": "-i, --image",
    "image_pull_policy": "--image-pull-policy",
    "image_pull_secrets": "--image-pull-secret",
    "indexed": "--array",
    "interactive": "--interactive",
    "labels": "-l/--label",
    "large_shm": "--large-shm",
    "memory_bytes": "--memory",
    "memory_limit_bytes": "--memory-limit",
    "min_member": "--min-member",
    "name_prefix": "--job-name-prefix",
    "new_claims": "--pvc-new",
    "node_type": "--node-type",
    "parallelism": "--parallelism",
    "ports": "--port",
    "privilege_escalation": "--allow-privilege-escalation",
    "python": "--python",
    "service_type": "--service-type",
    "snapshot_on_success": "--snapshot-on-success",
    "stdin": "--stdin",
    "time_limit_seconds": "--time-limit",
    "tolerations": "--toleration",
    "topology_preferred": "--preferred-pod-topology-key",
    "topology_required": "--required-pod-topology-key",
    "ttl_seconds": "--ttl-after-finish",
    "tty": "-t/--tty",
    "uid": "--run-as-uid",
    "volumes": "-v/--volume",
    "working_dir": "--working-dir",
}
"""The flag of each field that an error about a submission may name; no other layer knows flags."""

Decorator = Callable[..., Any]


class SubmitCommand(Command):
    """Accepts both forms of `--command`: with a value, or as a switch for the words after `--`."""

    takes_tail = True

    def rewrite(self, ctx: click.Context, args: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
        """Treat `--command` as a switch if the arguments have a bare `--`."""
        words, tail = split_words(self, args, without_value=frozenset({"--command"}))
        if tail is None:
            return super().rewrite(ctx, args)
        switches = [word for word in words if word.name == "--command"]
        ctx.meta[TAIL_IS_COMMAND_KEY] = bool(switches) and _is_on(switches[-1], ctx)
        tokens = [token for word in words if word.name != "--command" for token in word.tokens]
        return super().rewrite(ctx, tokens)[0], tail


def _is_on(switch: Word, ctx: click.Context) -> bool:
    _, equals, value = switch.tokens[0].partition("=")
    if equals and value not in ("true", "false"):
        raise click.UsageError(
            "--command=… and -- exclude each other: give the command with one of them", ctx
        )
    return value != "false"


def _text(*names: str, help: str, **more: Any) -> Decorator:  # noqa: A002
    return click.option(*names, help=help, **more)


def _many(*names: str, help: str, **more: Any) -> Decorator:  # noqa: A002
    return click.option(*names, multiple=True, help=help, **more)


def _flag(*names: str, help: str) -> Decorator:  # noqa: A002
    return click.option(*names, is_flag=True, default=None, help=help)


def _number(*names: str, help: str) -> Decorator:  # noqa: A002
    return click.option(*names, type=int, metavar="N", help=help)


NAME: Final = (
    click.argument("name", required=False),
    _text("--name", "name_option", metavar="NAME", help="Name of the job, instead of the argument."),
    _text(
        "--job-name-prefix",
        metavar="PREFIX",
        help="Prefix of a generated name; a number is appended. Default: job.",
    ),
)

CONTAINER: Final = (
    _text("-i", "--image", help="The container image."),
    _text("--image-pull-policy", type=click.Choice(PULL_POLICIES), help="When to pull the image."),
    _many(
        "--image-pull-secret",
        metavar="NAME",
        help="Secret of the project with the credentials of the image's registry. Repeatable.",
    ),
    _flag("--local-image", help="Use the image that is on the node and never pull it."),
    _flag("--always-pull-image", help="Pull the image even if it is on the node."),
    _many("--command", metavar="TEXT", help="Entry point, instead of that of the image; once for each word."),
    _many("--args", metavar="TEXT", help="An argument of the command; once for each."),
    _text("--working-dir", metavar="PATH", help="Working directory of the container."),
    _many(
        "-e",
        "--environment",
        metavar="NAME=VALUE",
        help="Environment variable; VALUE may be SECRET:SECRET-NAME,KEY.",
    ),
    _many("--env-file", metavar="FILE", help="File of environment variables, one NAME=VALUE on each line."),
    _text(
        "--code",
        metavar="DIR",
        help="Copy the files of this directory into /code of the container, and start there. At most 1 MiB compressed. "
        "The image needs tar and gzip.",
    ),
    _text(
        "--python",
        metavar="VERSION",
        help="Run the command with `uv run` and this version of Python (3.12); a pyproject.toml in the working "
        "directory has the dependencies. The image needs uv.",
    ),
    _text(
        "--git-sync",
        metavar="source=URL,…",
        help="Clone a Git repository before the start: "
        "source=,branch=,rev=,target=,secret=,username=,password=,image=.",
    ),
    _flag("--stdin", help="Keep the standard input open for `muster attach`."),
    _flag("-t", "--tty", help="Give the container a terminal; needs --stdin."),
)

RESOURCES: Final = (
    _text(
        "-g",
        "--gpu",
        "--gpus-per-node",
        metavar="GPUS",
        help="Number of GPUs (2), or a GPU fraction (0.5), of each pod.",
    ),
    _text("--gpu-memory", metavar="BYTES", help="GPU fraction by memory (4G, 500M), instead of --gpu."),
    _number("--gpu-devices", help="Number of GPUs with this fraction each; default: 1."),
    _text("--cpu", metavar="CPUS", help="CPU request; default: 1 for each GPU."),
    _text("--cpu-limit", metavar="CPUS", help="CPU limit."),
    _text("--memory", metavar="BYTES", help="Memory request, for example 4Gi; default: 100Mi for each GPU."),
    _text("--memory-limit", metavar="BYTES", help="Memory limit."),
    _many(
        "--extended-resource", metavar="NAME=COUNT", help="Request of another device, for example rdma/hca=1."
    ),
    _flag("--large-shm", help="Mount shared memory (/dev/shm) without a size limit of its own."),
)

STORAGE: Final = (
    _many("-v", "--volume", "--volumes", metavar="HOST:PATH[:ro|rw]", help="Mount a directory of the node."),
    _text("--nfs-server", metavar="HOST", help="NFS server of the directories of --volume."),
    _flag(
        "--mount-propagation",
        help="Show later mounts of the node below a --volume in the container too (HostToContainer).",
    ),
    _many(
        "--pvc", metavar="CLAIM:PATH[:ro|rw]", help="Mount an existing PVC, or a new one: [CLASS]:SIZE:PATH."
    ),
    _many("--pvc-exists", metavar="claimname=…,path=…", help="Mount an existing PVC."),
    _many("--pvc-new", metavar="size=…,path=…", help="Mount a new PVC, which is deleted with the job."),
    _many(
        "--clone-of",
        metavar="VOLUME:PATH[:ro|rw]",
        help="Mount a clone of a volume of the project. It is deleted with the job.",
    ),
    _flag("--snapshot-on-success", help="Take a snapshot of each PVC of the job when the job has succeeded."),
    _flag("--create-home-dir", help="Create an empty home directory and set HOME to it."),
)

SCHEDULING: Final = (
    _text("--node-type", metavar="TYPE", help="Run only on nodes with this value of the label run.ai/type."),
    _many("--toleration", metavar="KEY[=VALUE][:EFFECT]", help="Tolerate this taint of nodes."),
    _text(
        "--required-pod-topology-key",
        metavar="LABEL",
        help="Require that all pods of the job run on nodes with the same value of this label.",
    ),
    _text(
        "--preferred-pod-topology-key",
        metavar="LABEL",
        help="Prefer nodes with the same value of this label for all pods of the job.",
    ),
    _flag(
        "--preemptible", help="Let the scheduler evict the job for others. The job may then exceed the quota."
    ),
    _number(
        "--backoff-limit", "--backoffLimit", help="Maximum number of retries after a failure; default: 6."
    ),
    _many(
        "--after",
        metavar="JOB[:succeeded|ended|failed]",
        help="Start only after this job of the project has reached the state; default: succeeded.",
        shell_complete=completing("jobs"),
    ),
    _text(
        "--time-limit",
        metavar="DURATION",
        help="End and fail a pod that runs longer (90m, 48h). With it, the job can use GPUs reserved for a larger job.",
    ),
    _text(
        "--ttl-after-finish",
        "--auto-deletion-time-after-completion",
        metavar="DURATION",
        help="Delete the job this time after its end (5s, 2m, 3h).",
    ),
)

SECURITY: Final = (
    _flag(
        "--run-as-user",
        help="Run with the numeric ids of the submitting user on this machine: "
        "user, group and supplemental groups.",
    ),
    _text("--run-as-uid", metavar="ID", help="Run as the user with this id."),
    _text("--run-as-gid", metavar="ID", help="Run as the group with this id."),
    _text("--supplemental-groups", metavar="ID,ID", help="Ids of supplemental groups."),
    _flag(
        "--prevent-privilege-escalation",
        help="Set allowPrivilegeEscalation to false: no program gains more rights than its parent.",
    ),
    _flag(
        "--allow-privilege-escalation",
        help="Set allowPrivilegeEscalation to true. A policy of the project may refuse it.",
    ),
    _many("--add-capability", metavar="NAME", help="Add a Linux capability, for example NET_ADMIN."),
    _flag("--host-ipc", help="Use the IPC namespace of the node."),
    _flag("--host-network", help="Use the network namespace of the node."),
)

ABOUT: Final = (
    _many("-l", "--label", metavar="KEY=VALUE", help="Add a label to the job and its pods."),
    _many("-a", "--annotation", metavar="KEY=VALUE", help="Add an annotation to the job and its pods."),
    _text("-u", "--user", help="Name of the submitting user; default: the current user of this machine."),
    _text(
        "--template",
        metavar="NAME|FILE",
        help="Take options that are not given from this template, or from this file (with a / or .yaml).",
        shell_complete=completing("templates"),
    ),
    click.option(
        "--dry-run",
        cls=OptionalValue,
        bare="client",
        type=click.Choice((*DRY_RUNS, "true", "false")),
        metavar="[=client|server]",
        help="Print the objects and create nothing. server: the API server checks them as well.",
    ),
    _flag("--wait", help="Wait until the job has succeeded; the exit code is 1 if it fails."),
    output_option("json", "yaml", "name"),
)

INTERACTIVE: Final = (
    _flag(
        "--interactive",
        help="Submit an interactive job: it does not end by itself and is never evicted for others.",
    ),
    _flag("--jupyter", help="Start a Jupyter notebook and print its token."),
    _flag("--attach", help="Attach to the job as soon as it runs. Implies --stdin and --tty."),
    _text(
        "--wait-timeout",
        "--pod-running-timeout",
        metavar="DURATION",
        default="10m",
        show_default=True,
        help="Maximum time that --attach, --jupyter and portforward wait until the job runs.",
    ),
    _text("-s", "--service-type", type=click.Choice(SERVICE_TYPES), help="Access to the ports of the job."),
    _many("--port", metavar="PORT", help="Port of the job: PORT or EXTERNAL:INTERNAL."),
    _many("--address", metavar="IP", help="Local address of a portforward service; default: 127.0.0.1."),
    _flag(
        "--no-port-forward",
        help="Exit after the submission instead of forwarding the ports of a portforward service.",
    ),
)

COUNTS: Final = (
    _number(
        "--nodes",
        help="Distributed training: N pods that start together, with the variables of torchrun and /dev/shm. The same "
        "as submit-dist pytorch --no-master --workers N --large-shm.",
    ),
    _text(
        "--array",
        metavar="0-N[%M]",
        help="Sweep: one pod for each index from 0 to N, at most M at the same time. The pod reads its index from "
        "JOB_COMPLETION_INDEX; --backoff-limit counts for each index.",
    ),
    _number("--completions", help="Number of pods that must succeed."),
    _number("--parallelism", help="Number of pods that run at the same time."),
    _number("--min-member", help="Minimum number of pods that start together (gang)."),
)

DISTRIBUTED: Final = (
    _number(
        "--workers",
        help="Number of processes: besides the master (pytorch, tf), or in all (mpi). Default: 1.",
    ),
    _number("--processes", help="Number of processes. Each of them has the GPUs of --gpu."),
    _flag("--no-master", help="Start no separate master: the first worker is the master."),
    click.option(
        "--master-port", type=int, metavar="N", help=f"Where the master listens; default: {MASTER_PORT}."
    ),
)


@dataclass(frozen=True, slots=True)
class OldFlag:
    """A flag of older command lines that has no effect in muster. It is accepted with a warning, or refused."""

    reason: str
    refused: bool
    takes_value: bool = False


OLD_FLAGS: Final = {
    "--elastic": OldFlag("a job keeps the number of pods that it asks for", refused=False),
    "--mps": OldFlag("GPU fractions are time-shared by default; nothing has to be enabled", refused=False),
    "--mig-profile": OldFlag(
        "GPU fractions need no MIG: use -g 0.5 or --gpu-memory 5G", refused=True, takes_value=True
    ),
    "--mig": OldFlag(
        "GPU fractions need no MIG: use -g 0.5 or --gpu-memory 5G", refused=True, takes_value=True
    ),
    "--inference": OldFlag(
        "submit creates jobs, not scaled services: apply a Deployment with schedulerName muster",
        refused=True,
    ),
    "--replicas": OldFlag(
        "submit creates jobs, not scaled services: use --parallelism and --completions",
        refused=True,
        takes_value=True,
    ),
    "--node-pools": OldFlag("nodes have types, not pools: use --node-type", refused=True, takes_value=True),
    "--s3": OldFlag("buckets are mounted as PVCs of a CSI driver: use --pvc", refused=True, takes_value=True),
}


def _old(name: str, flag: OldFlag) -> Decorator:
    def say(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:  # noqa: ARG001
        if value in (None, (), False):
            return
        if flag.refused:
            raise UsageError(f"{name} is not possible: {flag.reason}")
        click.echo(f"Warning: {name} has no effect: {flag.reason}", err=True)

    kind: dict[str, Any] = {"multiple": True} if flag.takes_value else {"is_flag": True, "default": None}
    return click.option(name, hidden=True, expose_value=False, callback=say, **kind)


OLD: Final = tuple(_old(name, flag) for name, flag in OLD_FLAGS.items())
COMMON: Final = (*CONTAINER, *RESOURCES, *STORAGE, *SCHEDULING, *SECURITY, *ABOUT, *OLD)


def with_options(*options: Decorator) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command these options, in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate
