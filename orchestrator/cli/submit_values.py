"""From the values of submit's flags to a Submission."""

import getpass
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.cli import terminal
from orchestrator.cli.options import ARGUMENTS_KEY, TAIL_KEY
from orchestrator.cli.submit_options import TAIL_IS_COMMAND_KEY
from orchestrator.cluster.quantity import cpu_milli, memory_bytes
from orchestrator.errors import UsageError
from orchestrator.workloads import security
from orchestrator.workloads import values as parse
from orchestrator.workloads.environment import Variable, parse_variable, read_variables
from orchestrator.workloads.git_sync import parse_git_source, redacted
from orchestrator.workloads.network import Port, ingress_path, parse_port
from orchestrator.workloads.rendezvous import MASTER_PORT, Rendezvous
from orchestrator.workloads.storage import (
    Mount,
    NewClaim,
    parse_claim,
    parse_existing_claim,
    parse_new_claim,
    parse_volume,
)
from orchestrator.workloads.submission import Submission

Values = Mapping[str, Any]

DEFAULT_PREFIX: Final = "job"
JUPYTER_IMAGE: Final = "jupyter/scipy-notebook"
JUPYTER_PORT: Final = 8888
NOTEBOOK_COMMAND: Final = "start-notebook.sh"


def given_name(values: Values) -> str | None:
    """Return the name of the job, None when it is to be numbered. Raises UsageError."""
    argument, option = values.get("name"), values.get("name_option")
    if argument and option and argument != option:
        raise UsageError(f"the job has two names, {argument!r} and {option!r}: give one")
    name_prefix(values)
    name: str | None = option or argument
    return None if name is None else parse.parse_name(name)


def name_prefix(values: Values) -> str:
    """Return what the numbers of jobs without a name are put behind. Raises UsageError."""
    return parse.parse_name_prefix(values.get("job_name_prefix") or DEFAULT_PREFIX)


def submission_of(
    ctx: click.Context, values: Values, *, name: str | None = None, project: str = "", framework: str = ""
) -> Submission:
    """Return the validated submission of a parsed command line; `name` if it was numbered. Raises UsageError.

    `project` is needed for the path of a notebook behind an ingress only; `framework` makes it distributed.
    """
    if values.get("jupyter"):
        values = _with_jupyter(values)
    fields = fields_of(ctx, values, framework)
    asked = Submission(
        name=name or parse.parse_name(given_name(values)), image=parse.parse_image(values["image"]), **fields
    )
    if values.get("jupyter") and asked.service_type == "ingress" and not (asked.command or asked.args):
        return _behind_ingress(asked, project, fields)
    return asked


def fields_of(ctx: click.Context, values: Values, framework: str = "") -> dict[str, Any]:
    """Return the fields of the submission but for name and image, each flag checked for itself. Raises UsageError."""
    command, args = _container_command(ctx, values)
    claims = [parse_claim(text) for text in values["pvc"]]
    claims += map(parse_existing_claim, values["pvc_exists"])
    claims += map(parse_new_claim, values["pvc_new"])
    stdin, tty = _streams(values)
    return {
        "user": values["user"] or _operating_system_user(),
        "gpu_milli": parse.parse_gpu(values["gpu"]),
        "gpu_memory": parse.parse_gpu_memory(values["gpu_memory"]),
        "gpu_devices": parse.parse_count("--gpu-devices", values["gpu_devices"], 1),
        "interactive": bool(values.get("interactive")),
        "preemptible": values["preemptible"],
        "service_type": values.get("service_type"),
        "ports": tuple(map(parse_port, values.get("port", ()))),
        "command": command,
        "args": args,
        "environment": _variables(values),
        "volumes": tuple(parse_volume(text, values["nfs_server"]) for text in values["volume"]),
        "claims": tuple(each for each in claims if isinstance(each, Mount)),
        "new_claims": tuple(each for each in claims if isinstance(each, NewClaim)),
        "large_shm": bool(values["large_shm"]),
        "home_directory": bool(values["create_home_dir"]),
        "mount_propagation": bool(values["mount_propagation"]),
        "git": parse_git_source(values["git_sync"]),
        "image_pull_policy": _pull_policy(values),
        "working_dir": values["working_dir"],
        "cpu": parse.parse_quantity("--cpu", values["cpu"], cpu_milli),
        "cpu_limit": parse.parse_quantity("--cpu-limit", values["cpu_limit"], cpu_milli),
        "memory": parse.parse_quantity("--memory", values["memory"], memory_bytes),
        "memory_limit": parse.parse_quantity("--memory-limit", values["memory_limit"], memory_bytes),
        "extended_resources": tuple(map(parse.parse_extended_resource, values["extended_resource"])),
        "node_type": parse.parse_node_type("--node-type", values["node_type"]),
        "tolerations": tuple(map(parse.parse_toleration, values["toleration"])),
        "topology_required": parse.parse_topology_key(
            "--required-pod-topology-key", values["required_pod_topology_key"]
        ),
        "topology_preferred": parse.parse_topology_key(
            "--preferred-pod-topology-key", values["preferred_pod_topology_key"]
        ),
        "backoff_limit": parse.parse_count("--backoff-limit", values["backoff_limit"], 0),
        "ttl_seconds": parse.parse_duration_seconds("--ttl-after-finish", values["ttl_after_finish"]),
        "host_ipc": bool(values["host_ipc"]),
        "host_network": bool(values["host_network"]),
        "identity": _identity(values),
        "privilege_escalation": _privilege_escalation(values),
        "capabilities": tuple(map(parse.parse_capability, values["add_capability"])),
        "stdin": stdin,
        "stdin_once": bool(values.get("attach")) and not terminal.stdin_is_a_terminal(),
        "tty": tty,
        "labels": tuple(map(parse.parse_label, values["label"])),
        "annotations": tuple(map(parse.parse_annotation, values["annotation"])),
        "command_line": f"{ctx.command_path} {shlex.join(map(redacted, ctx.meta[ARGUMENTS_KEY]))}",
        **(_processes(values, framework) if framework else _counts(values)),
    }


def _counts(values: Values) -> dict[str, Any]:
    return {
        "completions": parse.parse_count("--completions", values["completions"], 1),
        "parallelism": parse.parse_count("--parallelism", values["parallelism"], 1),
        "min_member": parse.parse_count("--min-member", values["min_member"], 1),
    }


def _processes(values: Values, framework: str) -> dict[str, Any]:
    workers = parse.parse_count("--workers", values["workers"], 1)
    processes = parse.parse_count("--processes", values["processes"], 1)
    if workers is not None and processes is not None:
        raise UsageError("--workers and --processes both say how many there are: use one of them")
    with_master = framework != "mpi" and not values["no_master"]
    pods = processes if processes is not None else (workers or 1) + with_master
    port = values["master_port"]
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"--master-port {port} is not possible: give a number from 1 to 65535")
    return {
        "completions": pods,
        "parallelism": pods,
        "min_member": pods,
        "rendezvous": Rendezvous(framework, port or MASTER_PORT),
    }


def _with_jupyter(values: Values) -> Values:
    if values["interactive"] is False:
        raise UsageError("--jupyter does not go with --interactive=false: a notebook has no end")
    service = values["service_type"] or "portforward"
    return {
        **values,
        "interactive": True,
        "image": values["image"] or JUPYTER_IMAGE,
        "service_type": service,
        "port": values["port"] or (str(JUPYTER_PORT),),
    }


def _behind_ingress(asked: Submission, project: str, fields: dict[str, Any]) -> Submission:
    """The notebook has to know under which path it is seen."""
    port: Port = asked.ports[0]
    args = (f"--NotebookApp.base_url={ingress_path(asked, project, port)}",)
    changed = fields | {"command": (NOTEBOOK_COMMAND,), "args": args}
    return Submission(name=asked.name, image=asked.image, **changed)


def _streams(values: Values) -> tuple[bool, bool]:
    """--attach means both, but for a terminal where nobody types."""
    attach = bool(values.get("attach"))
    stdin, tty = values["stdin"], values["tty"]
    return (
        attach if stdin is None else stdin,
        attach and terminal.stdin_is_a_terminal() if tty is None else tty,
    )


def _variables(values: Values) -> tuple[Variable, ...]:
    """What is given on the command line wins over what files say."""
    from_files = [each for file in values["env_file"] for each in read_variables(Path(file))]
    return (*from_files, *map(parse_variable, values["environment"]))


def _container_command(ctx: click.Context, values: Values) -> tuple[tuple[str, ...], tuple[str, ...]]:
    tail: tuple[str, ...] = ctx.meta.get(TAIL_KEY) or ()
    if ctx.meta.get(TAIL_IS_COMMAND_KEY):
        if not tail:
            raise UsageError("--command says that a command follows --, and none does")
        return tail, values["args"]
    return values["command"], (*values["args"], *tail)


def _pull_policy(values: Values) -> str | None:
    policy: str | None = values["image_pull_policy"]
    for flag, meaning in (("local_image", "Never"), ("always_pull_image", "Always")):
        if not values[flag]:
            continue
        if policy not in (None, meaning):
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(f"{name} does not go with --image-pull-policy {policy}: it means {meaning}")
        policy = meaning
    return policy


def _identity(values: Values) -> security.Identity | None:
    uid = security.parse_id("--run-as-uid", values["run_as_uid"])
    gid = security.parse_id("--run-as-gid", values["run_as_gid"])
    groups = security.parse_groups(values["supplemental_groups"])
    numbers = uid is not None or gid is not None or bool(groups)
    if not values["run_as_user"]:
        return security.Identity(uid, gid, groups) if numbers else None
    if numbers:
        raise UsageError(
            "--run-as-user does not go with --run-as-uid, --run-as-gid and --supplemental-groups: "
            "it means those of who submits"
        )
    return security.caller()


def _privilege_escalation(values: Values) -> bool | None:
    prevent, allow = values["prevent_privilege_escalation"], values["allow_privilege_escalation"]
    if prevent is not None and allow is not None and prevent == allow:
        raise UsageError(
            "--prevent-privilege-escalation and --allow-privilege-escalation say the opposite: use one of them"
        )
    if prevent is not None:
        return not prevent
    return None if allow is None else bool(allow)


def _operating_system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise UsageError("-u/--user is needed: this machine has no name for the current user") from error
