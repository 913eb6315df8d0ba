"""Converts the values of the flags of `submit` into a Submission. Each value is parsed once."""

import getpass
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from orchestrator.cli import terminal
from orchestrator.cli.options import ARGUMENTS_KEY, TAIL_KEY
from orchestrator.cli.submit_options import TAIL_IS_COMMAND_KEY
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import UsageError
from orchestrator.submit import mount_parsing, parsing
from orchestrator.submit.dependencies import parse_dependency
from orchestrator.submit.network import ingress_path
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import MASTER_PORT, Mount, NewClaim, Rendezvous, RunAs, Variable

T = TypeVar("T")
Values = Mapping[str, Any]
"""The values of a command's parameters, by the names of the parameters."""

DEFAULT_PREFIX: Final = "job"
JUPYTER_IMAGE: Final = "jupyter/scipy-notebook"
JUPYTER_PORT: Final = 8888
NOTEBOOK_COMMAND: Final = "start-notebook.sh"


class SubmitRequest:
    """One command line of `submit`. `framework` makes the job distributed.

    If several submissions are made, every text is parsed only once. Every file is read only once, because it may be a
    pipe. Raises UsageError for a flag with an invalid value.
    """

    def __init__(self, ctx: click.Context, values: Values, framework: str = "") -> None:
        self.values = values
        self._ctx = ctx
        self._framework = framework
        self._parsed: dict[tuple[Any, ...], Any] = {}
        self.name = self._name(values)
        self._fields(values)

    def submission(
        self, name: str | None = None, *, project: str = "", values: Values | None = None
    ) -> Submission:
        """Return the validated submission; `name` is the name of a job without one. Raises UsageError.

        `values` are the values of the flags and of templates; by default those of the flags. `project` is needed for
        the path of a notebook behind an ingress.
        """
        values = self.values if values is None else values
        if values.get("jupyter"):
            values = _with_jupyter(values)
        submission = Submission(
            name=self.name or name or "",
            image=self._once(parsing.parse_image, values["image"]),
            **self._fields(values),
        )
        has_command = submission.command or submission.args
        if values.get("jupyter") and submission.service_type == "ingress" and not has_command:
            return _behind_ingress(submission, project)
        return submission

    def name_prefix(self, values: Values | None = None) -> str:
        """Return the prefix of numbered job names. Raises UsageError."""
        prefix = (self.values if values is None else values).get("job_name_prefix") or DEFAULT_PREFIX
        return self._once(parsing.parse_name_prefix, prefix)

    def _once(self, parse: Callable[..., T], *arguments: Any) -> T:
        """Return the function's result; later calls return the first result."""
        key = (parse, *arguments)
        if key not in self._parsed:
            self._parsed[key] = parse(*arguments)
        result: T = self._parsed[key]
        return result

    def _all(self, parse: Callable[[str], T], texts: tuple[str, ...]) -> tuple[T, ...]:
        return tuple(self._once(parse, text) for text in texts)

    def _name(self, values: Values) -> str | None:
        argument, option = values.get("name"), values.get("name_option")
        if argument and option and argument != option:
            raise UsageError(f"the job has two names, {argument!r} and {option!r}: give one")
        self.name_prefix()
        name: str | None = option or argument
        return None if name is None else self._once(parsing.parse_name, name)

    def _fields(self, values: Values) -> dict[str, Any]:
        """Return the fields of the submission except name and image. Each flag is checked alone."""
        return {
            "user": values["user"] or self._once(operating_system_user),
            "interactive": bool(values.get("interactive")),
            "preemptible": values["preemptible"],
            "labels": self._all(parsing.parse_label, values["label"]),
            "annotations": self._all(parsing.parse_annotation, values["annotation"]),
            **self._container(values),
            **self._resources(values),
            **self._storage(values),
            **self._scheduling(values),
            **self._security(values),
            **(self._processes(values) if self._framework else self._counts(values)),
        }

    def _container(self, values: Values) -> dict[str, Any]:
        command, args = self._command(values)
        stdin, tty = _streams(values)
        words = self._ctx.meta[ARGUMENTS_KEY]
        return {
            "image_pull_policy": _pull_policy(values),
            "image_pull_secrets": tuple(dict.fromkeys(values["image_pull_secret"])),
            "command": command,
            "args": args,
            "python": values["python"],
            "working_dir": values["working_dir"],
            "environment": self._variables(values),
            "code": self._once(_pack, values["code"]),
            "git": self._once(mount_parsing.parse_git_source, values["git_sync"]),
            "service_type": values.get("service_type"),
            "ports": self._all(mount_parsing.parse_port, values.get("port", ())),
            "stdin": stdin,
            "stdin_once": bool(values.get("attach")) and not terminal.stdin_is_a_terminal(),
            "tty": tty,
            "command_line": f"{self._ctx.command_path} {shlex.join(map(mount_parsing.redacted, words))}",
        }

    def _resources(self, values: Values) -> dict[str, Any]:
        return {
            "gpu_milli": self._once(parsing.parse_gpu, values["gpu"]),
            "gpu_memory_bytes": self._once(parsing.parse_gpu_memory, values["gpu_memory"]),
            "gpu_devices": self._count("gpu_devices", values, 1),
            "cpu_milli": self._once(parsing.parse_cpu, "cpu_milli", values["cpu"]),
            "cpu_limit_milli": self._once(parsing.parse_cpu, "cpu_limit_milli", values["cpu_limit"]),
            "memory_bytes": self._once(parsing.parse_memory, "memory_bytes", values["memory"]),
            "memory_limit_bytes": self._once(
                parsing.parse_memory, "memory_limit_bytes", values["memory_limit"]
            ),
            "extended_resources": self._all(parsing.parse_extended_resource, values["extended_resource"]),
            "large_shm": bool(values["large_shm"]) or values.get("nodes") is not None,
        }

    def _storage(self, values: Values) -> dict[str, Any]:
        server = values["nfs_server"]
        claims = (
            *self._all(mount_parsing.parse_claim, values["pvc"]),
            *self._all(mount_parsing.parse_existing_claim, values["pvc_exists"]),
            *self._all(mount_parsing.parse_new_claim, values["pvc_new"]),
            *self._all(mount_parsing.parse_clone, values["clone_of"]),
        )
        return {
            "volumes": tuple(
                self._once(mount_parsing.parse_volume, text, server) for text in values["volume"]
            ),
            "claims": tuple(claim for claim in claims if isinstance(claim, Mount)),
            "new_claims": tuple(claim for claim in claims if isinstance(claim, NewClaim)),
            "snapshot_on_success": bool(values["snapshot_on_success"]),
            "home_directory": bool(values["create_home_dir"]),
            "mount_propagation": bool(values["mount_propagation"]),
        }

    def _scheduling(self, values: Values) -> dict[str, Any]:
        return {
            "node_type": self._once(parsing.parse_node_type, "node_type", values["node_type"]),
            "tolerations": self._all(parsing.parse_toleration, values["toleration"]),
            "topology_required": self._once(
                parsing.parse_topology_key, "topology_required", values["required_pod_topology_key"]
            ),
            "topology_preferred": self._once(
                parsing.parse_topology_key, "topology_preferred", values["preferred_pod_topology_key"]
            ),
            "backoff_limit": self._count("backoff_limit", values, 0),
            "time_limit_seconds": self._once(
                parse_duration_seconds, "time_limit_seconds", values["time_limit"]
            ),
            "after": self._all(parse_dependency, values["after"]),
            "ttl_seconds": self._once(parse_duration_seconds, "ttl_seconds", values["ttl_after_finish"]),
        }

    def _security(self, values: Values) -> dict[str, Any]:
        return {
            "host_ipc": bool(values["host_ipc"]),
            "host_network": bool(values["host_network"]),
            "run_as": self._run_as(values),
            "privilege_escalation": _privilege_escalation(values),
            "capabilities": self._all(parsing.parse_capability, values["add_capability"]),
        }

    def _counts(self, values: Values) -> dict[str, Any]:
        counts = {
            field: self._count(field, values, 1) for field in ("completions", "parallelism", "min_member")
        }
        nodes = self._once(parsing.parse_count, "--nodes", values["nodes"], 1)
        if nodes is not None:
            for field in ("array", *counts):
                if values[field] is not None:
                    raise UsageError(
                        f"--nodes excludes --{field.replace('_', '-')}: it sets the number of pods"
                    )
            return _gang(nodes, Rendezvous("pytorch"))
        if values["array"] is None:
            return counts
        if any(values[field] is not None for field in ("completions", "parallelism")):
            raise UsageError("--array excludes --completions and --parallelism: it sets both")
        completions, parallelism = self._once(parsing.parse_array, values["array"])
        return counts | {"completions": completions, "parallelism": parallelism, "indexed": True}

    def _count(self, field: str, values: Values, minimum: int) -> int | None:
        return self._once(parsing.parse_count, field, values[field], minimum)

    def _processes(self, values: Values) -> dict[str, Any]:
        workers = self._once(parsing.parse_count, "--workers", values["workers"], 1)
        processes = self._once(parsing.parse_count, "--processes", values["processes"], 1)
        if workers is not None and processes is not None:
            raise UsageError("--workers and --processes exclude each other: give one of them")
        with_master = self._framework != "mpi" and not values["no_master"]
        pods = processes if processes is not None else (workers or 1) + with_master
        port = values["master_port"]
        if port is not None and not 0 < port < 65536:
            raise UsageError(f"--master-port {port} is not possible: give a number from 1 to 65535")
        return _gang(pods, Rendezvous(self._framework, port or MASTER_PORT))

    def _variables(self, values: Values) -> tuple[Variable, ...]:
        """Return the variables of files, then those of the command line, which have precedence."""
        from_files = [
            variable for file in values["env_file"] for variable in self._once(_read_variables, file)
        ]
        return (*from_files, *self._all(parsing.parse_variable, values["environment"]))

    def _command(self, values: Values) -> tuple[tuple[str, ...], tuple[str, ...]]:
        tail: tuple[str, ...] = self._ctx.meta.get(TAIL_KEY) or ()
        if self._ctx.meta.get(TAIL_IS_COMMAND_KEY):
            if not tail:
                raise UsageError("--command needs a command after --")
            return tail, values["args"]
        return values["command"], (*values["args"], *tail)

    def _run_as(self, values: Values) -> RunAs | None:
        uid = self._once(parsing.parse_id, "uid", values["run_as_uid"])
        gid = self._once(parsing.parse_id, "gid", values["run_as_gid"])
        groups = self._once(parsing.parse_groups, values["supplemental_groups"])
        has_numbers = uid is not None or gid is not None or bool(groups)
        if not values["run_as_user"]:
            return RunAs(uid, gid, groups) if has_numbers else None
        if has_numbers:
            raise UsageError(
                "--run-as-user excludes --run-as-uid, --run-as-gid and --supplemental-groups: it takes the "
                "ids of the submitting user"
            )
        return RunAs(os.getuid(), os.getgid(), tuple(sorted(set(os.getgroups()) - {os.getgid()})))


def _gang(pods: int, rendezvous: Rendezvous) -> dict[str, Any]:
    return {"completions": pods, "parallelism": pods, "min_member": pods, "rendezvous": rendezvous}


def _read_variables(file: str) -> tuple[Variable, ...]:
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"--env-file {file} cannot be read: {error.strerror}") from error
    return parsing.parse_variables(content, file)


def _pack(directory: str | None) -> bytes | None:
    if directory is None:
        return None
    from orchestrator.client.working_tree import pack_code

    return pack_code(directory)


def _with_jupyter(values: Values) -> Values:
    if values["interactive"] is False:
        raise UsageError("--jupyter excludes --interactive=false: a notebook does not end by itself")
    return {
        **values,
        "interactive": True,
        "image": values["image"] or JUPYTER_IMAGE,
        "service_type": values["service_type"] or "portforward",
        "port": values["port"] or (str(JUPYTER_PORT),),
    }


def _behind_ingress(submission: Submission, project: str) -> Submission:
    """Return the submission with a command that tells the notebook its path behind the ingress."""
    base_url = ingress_path(submission, project, submission.ports[0])
    return replace(submission, command=(NOTEBOOK_COMMAND,), args=(f"--NotebookApp.base_url={base_url}",))


def _streams(values: Values) -> tuple[bool, bool]:
    """Return `stdin` and `tty`. --attach sets both by default, but `tty` only if the standard input is a terminal."""
    attach = bool(values.get("attach"))
    stdin, tty = values["stdin"], values["tty"]
    return (
        attach if stdin is None else stdin,
        attach and terminal.stdin_is_a_terminal() if tty is None else tty,
    )


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


def _privilege_escalation(values: Values) -> bool | None:
    prevent, allow = values["prevent_privilege_escalation"], values["allow_privilege_escalation"]
    if prevent is not None and allow is not None and prevent == allow:
        raise UsageError(
            "--prevent-privilege-escalation and --allow-privilege-escalation exclude each other: give one "
            "of them"
        )
    if prevent is not None:
        return not prevent
    return None if allow is None else bool(allow)


def operating_system_user() -> str:
    """Return the name of the user of this machine, which a submission has by default. Raises UsageError."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise UsageError("-u/--user is missing: this machine has no name for the current user") from error
