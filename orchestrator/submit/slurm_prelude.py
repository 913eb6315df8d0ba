"""The line of a translated script of Slurm that sets the variables of Slurm and defines `srun`."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.submit.slurm_options import OPTIONS
from orchestrator.submit.slurm_values import Array

MEMORY_VARIABLES: Final[Mapping[str, str]] = {
    "mem": "SLURM_MEM_PER_NODE",
    "mem-per-cpu": "SLURM_MEM_PER_CPU",
    "mem-per-gpu": "SLURM_MEM_PER_GPU",
}
"""The variable, in megabytes, of each option for memory."""


@dataclass(slots=True)
class Job:
    """The request in a script. Tasks, GPUs and CPUs are those of one node; 0 CPUs is the default of muster."""

    name: str = ""
    nodes: int = 1
    tasks: int = 1
    gpus: int = 0
    gpu_type: str = ""
    cpus: int = 0
    array: Array | None = None


def variables(
    job: Job, job_id: int, texts: Mapping[str, str], memory_bytes: Mapping[str, int]
) -> dict[str, str]:
    """Return a shell word for each variable of Slurm that has the same meaning here.

    `texts` has the values of the options by their names, `memory_bytes` the values for `MEMORY_VARIABLES`.
    """
    index = "0" if job.nodes == 1 else "$JOB_COMPLETION_INDEX"
    host = "$HOSTNAME" if job.nodes == 1 else "$JOB_NAME-$JOB_COMPLETION_INDEX.$JOB_NAME"
    hosts = [host] if job.nodes == 1 else [f"$JOB_NAME-{node}.$JOB_NAME" for node in range(job.nodes)]
    spread = "" if job.nodes == 1 else f"'(x{job.nodes})'"
    words = {
        "SLURM_JOB_ID": str(job_id) if job.array is None else f"$(({job_id} + JOB_COMPLETION_INDEX))",
        "SLURM_JOBID": "$SLURM_JOB_ID",
        "SLURM_JOB_NAME": shlex.quote(job.name),
        **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), str(job.nodes)),
        **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), ",".join(hosts)),
        "SLURMD_NODENAME": host,
        "SLURM_NODEID": index,
        "SLURM_PROCID": f"$(({index} * {job.tasks}))",
        "SLURM_LOCALID": "0",
        "SLURM_TASKS_PER_NODE": f"{job.tasks}{spread}",
        **_array_variables(job.array, job_id),
    }
    if {"ntasks", "ntasks-per-node"} & texts.keys():
        words |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), str(job.nodes * job.tasks))
    if job.gpus:
        words["SLURM_GPUS_ON_NODE"] = str(job.gpus)
    if job.cpus:
        words |= {"SLURM_CPUS_ON_NODE": str(job.cpus), "SLURM_JOB_CPUS_PER_NODE": f"{job.cpus}{spread}"}
    words |= {
        name: shlex.quote(texts[option]) for option, name in OPTIONS.items() if name and option in texts
    }
    return words | {MEMORY_VARIABLES[name]: str(size >> 20) for name, size in memory_bytes.items() if size}


def _array_variables(array: Array | None, job_id: int) -> dict[str, str]:
    if array is None:
        return {}
    first, step = array.tasks[0], array.step
    words = {
        "SLURM_ARRAY_JOB_ID": str(job_id),
        "SLURM_ARRAY_TASK_ID": f"$(({first} + JOB_COMPLETION_INDEX * {step}))" if step else "$_task",
        "SLURM_ARRAY_TASK_COUNT": str(len(array.tasks)),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(array.tasks[-1]),
    }
    return words | ({"SLURM_ARRAY_TASK_STEP": str(step)} if step else {})


def first_line(job: Job, words: Mapping[str, str], binds: bool) -> str:
    """Return the line for these variables. With `binds`, each of several tasks on a node sees only its own GPU."""
    parts = []
    if job.array is not None and not job.array.step:
        tasks = " ".join(map(str, job.array.tasks))
        parts.append(f'_pick() {{ shift "$1"; _task=$1; }}; _pick $((JOB_COMPLETION_INDEX + 1)) {tasks}')
    parts += [f"export {name}={word}" for name, word in words.items()]
    parts.append(_srun(job, binds))
    return "; ".join(parts)


def _srun(job: Job, binds: bool) -> str:
    """Return the definition of `srun COMMAND`. It runs the tasks of this node, and returns the status of a failed
    task, else 0.
    """
    if job.tasks == 1:
        return 'srun() { "$@"; }'
    rank = f"$((SLURM_NODEID * {job.tasks} + _local))"
    exports = (
        f"SLURM_PROCID={rank} SLURM_LOCALID=$_local "
        f"RANK={rank} LOCAL_RANK=$_local WORLD_SIZE={job.tasks * job.nodes}"
    )
    if binds and job.gpus:
        exports += " CUDA_VISIBLE_DEVICES=$_local"
    return (
        f'srun() {{ _local=0; _started=; while [ $_local -lt {job.tasks} ]; do (export {exports}; exec "$@") & '
        '_started="$_started $!"; _local=$((_local + 1)); done; _status=0; '
        "for _local in $_started; do wait $_local || _status=$?; done; return $_status; }"
    )
