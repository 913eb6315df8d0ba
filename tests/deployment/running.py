"""Runs of the real ansible-playbook in tests, with the results from its JSON callback."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployment.failure import is_failed

ROOT = Path(__file__).resolve().parents[2]


def program(name: str) -> Path:
    """Return the path of a program of Ansible beside the Python that runs the tests."""
    return Path(sys.executable).parent / name


def inherited() -> dict[str, str]:
    """Return the environment of the tests, without settings of other programs, and with bytecode enabled.

    Ansible imports hundreds of modules at each start and more for each task. To compile them each time takes longer
    than the rest of its work.
    """
    others = ("ANSIBLE_", "MOLECULE_", "PYTEST_", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if not key.startswith(others)}


@dataclass(frozen=True)
class Result:
    """The outcome of one run of a playbook."""

    code: int
    stats: dict[str, dict[str, int]]
    tasks: list[tuple[str, str, dict[str, Any]]]
    output: str

    @property
    def changed(self) -> int:
        """The number of changes on all hosts."""
        return sum(host["changed"] for host in self.stats.values())

    @property
    def changes(self) -> list[str]:
        """The names of the tasks that changed something."""
        return [task for task, _, result in self.tasks if result.get("changed")]

    @property
    def failures(self) -> list[str]:
        """The messages of failed tasks. A loop gives one message for each failed item."""
        messages: list[str] = []
        for _, _, result in self.tasks:
            if result.get("failed") or result.get("unreachable"):
                failed = [item for item in result.get("results", []) if is_failed(item)] or [result]
                messages += [str(item.get("msg", "")) for item in failed]
        return messages


def play(
    playbook: Path,
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    programs: Path | None = None,
) -> Result:
    """Run a playbook with the repository's roles. Files that Ansible writes for itself are in `folder`.

    `programs` is the folder of another ansible-playbook than the one beside this Python.
    """
    programs = programs or Path(sys.executable).parent
    settings = {
        "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_LOCAL_TEMP": str(folder / "ansible-local"),
        "ANSIBLE_HOME": str(folder / "ansible-home"),
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
        "ANSIBLE_RETRY_FILES_ENABLED": "false",
        "ANSIBLE_PIPELINING": "true",  # as muster has it; else each task starts four more programs
        "ANSIBLE_NOCOLOR": "true",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    finished = subprocess.run(
        [str(programs / "ansible-playbook"), str(playbook), *arguments],
        cwd=folder,
        env=inherited() | settings | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return _read(finished)


def _read(finished: subprocess.CompletedProcess[str]) -> Result:
    output = finished.stdout + finished.stderr
    start = finished.stdout.find("{")
    try:
        report = json.loads(finished.stdout[start:])
    except ValueError as error:
        raise AssertionError(f"ansible-playbook ended with {finished.returncode}:\n{output}") from error
    tasks = [
        (task["task"]["name"].rpartition(" : ")[2], host, result)
        for one in report["plays"]
        for task in one["tasks"]
        for host, result in task["hosts"].items()
    ]
    return Result(finished.returncode, report["stats"], tasks, output)
