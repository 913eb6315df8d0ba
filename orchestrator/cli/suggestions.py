"""Suggestions for an unknown command or option: the most similar one, or muster's equivalent for a word of another
program.

The words are those of Slurm (https://slurm.schedmd.com/man_index.html), of Run:ai's newer command line
(https://run-ai-docs.nvidia.com, CLI reference) and of kubectl, looked up in November 2026.
"""

from collections.abc import Collection
from typing import Final

WORDS: Final = {
    "ls": "list",
    "ps": "list",
    "jobs": "list",
    "nodes": "list nodes",
    "projects": "project list",
    "cancel": "delete",
    "update": "edit",
    "modify": "edit",
    "change": "edit",
    "kill": "delete",
    "rm": "delete",
    "log": "logs",
    "run": "submit",
    "ssh": "bash",
    "shell": "bash",
    "events": "get",
    "status": "get",
    "why": "explain",
    "squeue": "list",
    "sacct": "list",
    "srun": "submit --attach",
    "salloc": "submit --interactive",
    "scancel": "delete",
    "scontrol": "get",
    "sinfo": "list nodes",
    "sstat": "top job",
    "sprio": "explain",
    "sattach": "attach",
    "sacctmgr": "project",
    "training": "submit",
    "workspace": "submit --interactive",
    "inference": "submit",
    "workload": "list",
    "drain": "node drain",
    "cordon": "node drain",
    "uncordon": "node uncordon",
    "kubeconfig": "config",
    "project get": "get project",
    "project describe": "get project",
    "project show": "get project",
    "template get": "get template",
}
"""Muster's command for the same task, by the word of another program.

A word below a group has the group as a prefix.
"""

OPTIONS: Final = (
    (("--gres", "--gpus", "--num-gpus", "--gpu-devices-request"), "--gpu", "-g/--gpu, for example -g 2"),
    (("--gpu-portion-request",), "--gpu", "-g/--gpu, for example -g 0.5"),
    (("--gpu-memory-request",), "--gpu-memory", "--gpu-memory, for example --gpu-memory 4G"),
    (("--cpus", "--cpu-core-request"), "--cpu", "--cpu"),
    (("--mem", "--cpu-memory-request"), "--memory", "--memory, for example --memory 8Gi"),
    (("--time",), "--time-limit", "--time-limit, for example --time-limit 2h"),
    (("--dependency",), "--after", "--after JOB"),
    (("--ntasks",), "--processes", "--processes"),
    (("--ntasks",), "--nodes", "--nodes"),
    (("--partition", "--account", "--namespace", "-n"), "--project", "-p/--project"),
    (("--all-namespaces",), "--all-projects", "-A/--all-projects"),
    (("--me", "--mine"), "--user", "--user NAME"),
    (("--nodelist",), "--node", "--node NAME"),
    (("--nodelist",), "--node-type", "--node-type TYPE"),
    (("--sort-by",), "--sort", "--sort FIELD"),
    (("--format",), "--columns", "--columns NAME,…"),
    (("--format",), "--output", "-o/--output"),
    (("--field-selector", "--state", "--states"), "--status", "--status STATUS"),
    (("--pending",), "--status", "--status Pending"),
    (("--running",), "--status", "--status Running"),
    (("--succeeded", "--completed"), "--status", "--status Succeeded"),
    (("--failed",), "--status", "--status Failed"),
    (("--suspended",), "--status", "--status Suspended"),
    (("--force",), "--yes", "-y/--yes"),
)
"""Options of other programs, the muster option that the command must have, and the hint.

The first entry that matches is used.
"""

NO_PRIORITY: Final = (
    "Training, --interactive and --interactive --preemptible have priorities of their own; 'muster edit JOB --priority "
    "CLASS' changes that of one job."
)
"""The hint for --priority, which submit does not have."""


def option_suggestion(option: str, known: Collection[str]) -> str:
    """Return the sentence to add to "No such option", for a command with the options `known`; empty if there is none.

    Example: `option_suggestion("--gres", ["--gpu"])` returns `"The option for it is -g/--gpu, for example -g 2."`.
    """
    if option == "--priority" and "--preemptible" in known:
        return NO_PRIORITY
    texts = (text for options, required, text in OPTIONS if option in options and required in known)
    return next((f"The option for it is {text}." for text in texts), "")


def suggestion(word: str, commands: Collection[str], group: str = "") -> str:
    """Return the sentence to add to "No such command". Empty if no command is similar.

    Example: `suggestion("lst", ["list", "logs", "submit"])` returns `"Did you mean 'list'?"`.
    """
    from difflib import get_close_matches

    word = f"{group} {word}".lstrip() if f"{group} {word}" in WORDS else word
    if word in WORDS:
        return f"The command for it is 'muster {WORDS[word]}'."
    alike = get_close_matches(word, sorted(commands), n=2, cutoff=0.6)
    if not alike:
        return ""
    return f"Did you mean {' or '.join(repr(name) for name in alike)}?"
