"""Suggestions for an unknown command: the most similar command, or muster's command for a word of another program.

The words are those of Slurm (https://slurm.schedmd.com/man_index.html) and of Run:ai's newer command line
(https://run-ai-docs.nvidia.com, CLI reference), looked up in November 2026.
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
    "node": "list nodes",
    "kubeconfig": "config",
    "project get": "get project",
    "project describe": "get project",
    "project show": "get project",
    "template get": "get template",
}
"""Muster's command for the same task, by the word of another program.

A word below a group has the group as a prefix.
"""


def suggestion(word: str, commands: Collection[str], group: str = "") -> str:
    """Return the sentence to add to "No such command"; empty if no command is alike.

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
