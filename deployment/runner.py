"""Runs one playbook with ansible-runner: events become progress, a log without secrets, and failures."""

import base64
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import ansible_runner
from ansible_runner.exceptions import AnsibleRunnerException

from deployment import nested, subreaper
from deployment.content import Content
from deployment.errors import InstallError
from deployment.failure import Failure, message_of
from deployment.site_checks import CONTROLLER
from orchestrator.distribution import install_command
from orchestrator.progress import Reporter

COUNTED: Final = ("ok", "changed", "failures", "dark", "skipped", "rescued", "ignored")
PROVED: Final = ("Report the proved requirements", "Report the requirements that are not proved")
EFFECTS: Final = "Report the changes"
KEPT: Final = "Report the kept objects"
_HIDDEN: Final = "***"
_LAUNCHERS: Final = Path(__file__).parent / "data" / "bin"
_PROCESS: Final = "subreaper"
_OK: Final = "successful"
_POLL_SECONDS: Final = 1
"""Interval at which ansible-runner asks `_poll` whether to end the run."""


@dataclass
class Outcome:
    """The result of a playbook. `hosts` has for each host the number of its tasks by their result."""

    ok: bool = False
    interrupted: bool = False
    failures: list[Failure] = field(default_factory=list)
    hosts: dict[str, dict[str, int]] = field(default_factory=dict)
    problem: str = ""
    proved: list[str] = field(default_factory=list)
    """The messages of the tasks with a name of `PROVED`, with the host unless it is the controller."""
    kept_objects: list[str] = field(default_factory=list)
    """The messages of the tasks with the name `KEPT`, in the same form."""

    @property
    def changed(self) -> int:
        """The number of tasks that changed something, on all hosts."""
        return sum(counts.get("changed", 0) for counts in self.hosts.values())


@dataclass(frozen=True)
class Playbook:
    """A playbook with the options of its run."""

    path: Path
    label: str
    tags: tuple[str, ...] = ()
    check: bool = False
    limit: str = ""
    extra: tuple[str, ...] = ()
    """Values of `--extra-vars`: `@FILE` or `name=value`. Never a secret, because the command line is visible."""


class Runner:
    """Runs playbooks on one inventory. `secrets` are texts that no log may contain.

    `lock` is a file that is locked while any process of a run is active, also if muster was killed. `hidden` are
    secret variables of Ansible's environment. They are passed separately, because ansible-runner writes its
    environment into a file.
    """

    def __init__(
        self,
        content: Content,
        inventory: dict[str, Any],
        progress: Reporter,
        *,
        lock: Path,
        vault: Path | None = None,
        ansible_bin: Path | None = None,
        secrets: Iterable[str] = (),
        interrupted: Callable[[], bool] = lambda: False,
        environment: Mapping[str, str] | None = None,
        hidden: Mapping[str, str] | None = None,
    ) -> None:
        self._content = content
        self._inventory = inventory
        self._progress = progress
        self._lock = lock
        self._vault = vault
        self._bin = ansible_bin
        plain = [secret for secret in secrets if secret]
        encoded = [base64.b64encode(secret.encode()).decode() for secret in plain]
        self._secrets = sorted({*plain, *encoded}, key=len, reverse=True)
        self._interrupted = interrupted
        self._extra_environment = environment or {}
        self._hidden = hidden or {}

    def run(self, playbook: Playbook, log: Path) -> Outcome:
        """Run the playbook to its end. Raises InstallError if Ansible cannot be started."""
        private = Path(tempfile.mkdtemp(prefix="muster-install-"))
        outcome = Outcome()
        try:
            with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as output:
                events = nested.NestedEvents(private / "nested.jsonl")
                listener = _Listener(
                    playbook.label, self._progress, output.write, self._hide, outcome, events=events
                )
                with self._launcher(private) as launcher:
                    self._start(playbook, private, listener, outcome, launcher)
        except AnsibleRunnerException as error:
            raise InstallError(f"ansible-playbook cannot be started: {self._hide(str(error))}") from error
        except OSError as error:
            raise InstallError(f"{error.filename or log}: {error.strerror}") from error
        finally:
            shutil.rmtree(private, ignore_errors=True)
        return outcome

    def _start(
        self,
        playbook: Playbook,
        private: Path,
        listener: "_Listener",
        outcome: Outcome,
        launcher: dict[str, str],
    ) -> None:
        inventory = private / "inventory.json"
        inventory.touch(mode=0o600)
        inventory.write_text(json.dumps(self._inventory))
        ended = ansible_runner.run(
            private_data_dir=str(private),
            project_dir=str(self._content.playbooks),
            playbook=str(playbook.path),
            inventory=str(inventory),
            cmdline=" ".join(self._options(playbook)),
            envvars=self._environment(private) | launcher | {nested.VARIABLE: str(listener.nested.path)},
            settings={
                "suppress_ansible_output": True,
                "suppress_output_file": True,
                "idle_timeout": 0,
                "job_timeout": 0,
                "pexpect_timeout": _POLL_SECONDS,
            },
            suppress_env_files=True,
            quiet=True,
            event_handler=listener,
            cancel_callback=lambda: self._poll(private, listener),
            rotate_artifacts=1,
        )
        listener.follow()
        outcome.ok = ended.status == _OK
        outcome.interrupted = not outcome.ok and self._interrupted()
        if not outcome.ok and not outcome.failures:
            outcome.problem = listener.problem or self._exit_problem(ended.rc)

    def _exit_problem(self, code: int | None) -> str:
        if shutil.which("ansible-playbook", path=self._path) is None:
            return (
                f"there is no ansible-playbook: install muster again with `{install_command('deployment')}`"
            )
        return f"ansible-playbook ended with exit code {code}"

    def _options(self, playbook: Playbook) -> list[str]:
        words = []
        if playbook.tags:
            words += ["--tags", ",".join(playbook.tags)]
        if playbook.check:
            words.append("--check")
        if playbook.limit:
            words += ["--limit", playbook.limit]
        for value in [*([f"@{self._vault}"] if self._vault else []), *playbook.extra]:
            words += ["--extra-vars", f"'{value}'"]
        return words

    def _environment(self, private: Path) -> dict[str, str]:
        return {
            **self._extra_environment,
            "ANSIBLE_CONFIG": str(Path(__file__).parent / "data" / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(self._content.roles),
            "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
            "ANSIBLE_HOST_KEY_CHECKING": "True",  # ansible-runner sets False if this is not set
            "ANSIBLE_NOCOLOR": "1",
            # Otherwise Ansible would compile itself again at each start and for each task.
            "PYTHONDONTWRITEBYTECODE": "",
            "PATH": self._path,
        }

    @property
    def _path(self) -> str:
        """The PATH of the run: the directory of its Ansible first."""
        return f"{self._bin or Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"

    @contextlib.contextmanager
    def _launcher(self, private: Path) -> Iterator[dict[str, str]]:
        """Yield the environment in which the subreaper starts Ansible. The hidden variables are only in memory."""
        real = shutil.which("ansible-playbook", path=self._path)
        if real is None:
            yield {}
            return
        before = {name: os.environ.pop(name) for name in self._hidden if name in os.environ}
        memory = os.memfd_create("muster-secrets")
        try:
            os.write(memory, json.dumps(dict(self._hidden)).encode())
            options = private / "subreaper.json"
            options.touch(mode=0o600)
            options.write_text(
                json.dumps(
                    {
                        "program": real, "parent": os.getpid(), "lock": str(self._lock), "private": str(private),
                        "process": str(private / _PROCESS), "path": self._path,
                        "secrets": f"/proc/{os.getpid()}/fd/{memory}",
                    }
                )
            )  # fmt: skip
            yield {
                "MUSTER_PYTHON": sys.executable,
                "MUSTER_SUBREAPER": subreaper.__file__,
                "MUSTER_SUBREAPER_OPTIONS": str(options),
                "PATH": f"{_LAUNCHERS}:{self._path}",
            }
        finally:
            os.close(memory)
            os.environ.update(before)

    def _poll(self, private: Path, listener: "_Listener") -> bool:
        """Report the events of a nested Ansible, and end the subreaper on an interrupt.

        Always returns False: on True, ansible-runner would end Ansible and leave its child processes running.
        """
        listener.follow()
        if self._interrupted():
            with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
                os.kill(int((private / _PROCESS).read_text()), signal.SIGTERM)
        return False

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text


class _Listener:
    """The function that ansible-runner calls for each event. It returns False, so that ansible-runner deletes the file
    of the event.
    """

    def __init__(
        self,
        label: str,
        progress: Reporter,
        write: Callable[[str], object],
        hide: Callable[[str], str],
        outcome: Outcome,
        *,
        events: nested.NestedEvents,
    ) -> None:
        self._label = label
        self._progress = progress
        self._write = write
        self._hide = hide
        self._outcome = outcome
        self.problem = ""
        self.nested = events
        self._nested_failures: dict[str, Failure] = {}

    def follow(self) -> None:
        """Report the new events of the Ansible that a task has started."""
        for event in self.nested.read():
            self._write(self._hide(nested.log_line(event)) + "\n")
            kind = event["kind"]
            if kind == "task":
                self._progress.update(f"{self._label}: {event['name']}")
            elif kind in {"failed", "unreachable"}:
                failure = nested.failure_of(event)
                self._nested_failures[failure.host] = replace(failure, message=self._hide(failure.message))
            elif "host" in event:
                self._nested_failures.pop(event["host"], None)  # the host continues, for example in a rescue
                self._progress.update(f"{self._label}: {event['host']}: {event['task']}")

    def __call__(self, event: dict[str, Any]) -> bool:
        text = event.get("stdout")
        if text:
            self._write(self._hide(str(text)) + "\n")
            if not self.problem and ("ERROR!" in text or "[ERROR]" in text):
                self.problem = self._hide(" ".join(str(text).split()))[:600]
        data = event.get("event_data", {})
        kind = event.get("event", "")
        if kind == "playbook_on_task_start":
            self._progress.update(f"{self._label}: {data.get('name', '')}")
        elif kind == "runner_on_start":
            self._progress.update(f"{self._label}: {data.get('host', '')}: {data.get('task', '')}")
        elif kind == "runner_on_ok" and str(data.get("task", "")).endswith((*PROVED, KEPT)):
            where = "" if data.get("host") == CONTROLLER else f"{data.get('host')}: "
            messages = self._outcome.kept_objects if data["task"].endswith(KEPT) else self._outcome.proved
            messages.append(where + self._hide(message_of(data.get("res", {}))))
        elif kind == "runner_on_ok" and str(data.get("task", "")).endswith(EFFECTS):
            message = self._hide(message_of(data.get("res", {})))
            self._progress(f"{self._label}: {data.get('host')}: {message}")
        elif kind in {"runner_on_failed", "runner_on_unreachable"} and not data.get("ignore_errors"):
            self._failed(data, unreachable=kind == "runner_on_unreachable")
        elif kind == "playbook_on_stats":
            self._outcome.hosts = {
                host: {name: data.get(name, {}).get(host, 0) for name in COUNTED}
                for host in data.get("processed", {})
            }
        return False

    def _failed(self, data: dict[str, Any], *, unreachable: bool) -> None:
        """Store a failure.

        If the task had started a nested Ansible, store the failed hosts and tasks of the nested one.
        """
        self.follow()
        if self._nested_failures:
            for failure in self._nested_failures.values():
                self._outcome.failures.append(failure)
                self._progress(f"{self._label}: {failure.host}: {failure.task}: failed")
            self._nested_failures.clear()
            return
        failure = Failure(
            host=data.get("host", "?"),
            task=data.get("task", "?"),
            place=data.get("task_path", "?"),
            message=self._hide(message_of(data.get("res", {}))),
            unreachable=unreachable,
        )
        self._outcome.failures.append(failure)
        self._progress(f"{self._label}: {failure.host}: {failure.task}: failed")
