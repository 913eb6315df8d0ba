"""Programs of these tests as processes with a memory limit and a time limit. A judge measures at each step."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.gpu.judge import Judge
from tests.gpumemory.usage_file import counted_bytes

ROOT: Final = Path(__file__).parents[2]
PYTHON_VARIABLE: Final = "MUSTER_GPU_PYTHON"
PYTHON: Final = os.environ.get(PYTHON_VARIABLE) or sys.executable
"""The Python with PyTorch, JAX and other frameworks."""

Step = dict[str, Any]


@dataclass
class Container:
    """The common environment of the processes in one container, on this machine's GPU.
    `limit_bytes` None: no library.
    """

    directory: Path
    library: Path
    uuid: str
    limit_bytes: int | None

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables of the test without preloaded libraries, and with library and limit if a limit is set."""
        self.state.mkdir(parents=True)
        environment = {
            name: value for name, value in os.environ.items() if name not in {"LD_PRELOAD", "PYTHONPATH"}
        }
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        if self.limit_bytes is None:
            return environment
        limits = self.directory / "limits"
        limits.write_text(f"{self.uuid} {self.limit_bytes}\n")
        return environment | {
            "LD_PRELOAD": str(self.library),
            "MUSTER_GPU_MEMORY_LIMITS": str(limits),
            "MUSTER_GPU_MEMORY_STATE": str(self.state),
        }

    def counted_bytes(self) -> int:
        """Return the bytes that the library counts for all processes."""
        return counted_bytes(self.state)


@dataclass
class Program:
    """A running program, which is killed with its children after `seconds`."""

    command: Sequence[str]
    container: Container
    judge: Judge
    seconds: float
    variables: Mapping[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    is_late: bool = False
    _is_waiting: bool = False

    def __post_init__(self) -> None:
        self.log = self.container.directory / "log"
        environment = self.container.environment | dict(self.variables)
        self._errors = self.log.open("w")
        self._process = subprocess.Popen(
            list(self.command), env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._timer = threading.Timer(self.seconds, self._end_late)
        self._timer.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def until(self, name: str) -> Step:
        """Run until this step, measure, and wait there. Raises AssertionError if the program ends before."""
        while True:
            step = self.next()
            assert step is not None, self.end()
            if step["step"] == name:
                return step

    def next(self) -> Step | None:
        """Run until the next step, and return it; None at the end."""
        self.go_on()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                step: Step = json.loads(line)
                self.steps.append(step | self._judged())
                self._is_waiting = True
                return self.steps[-1]
        return None

    def go_on(self) -> None:
        """Let the program continue from the step at which it waits, if it waits."""
        if not self._is_waiting:
            return
        self._is_waiting = False
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return

    def _judged(self) -> Step:
        processes = self.judge.processes()
        return {
            "at_second": round(time.monotonic() - self.began, 2),
            "counted_bytes": self.container.counted_bytes(),
            "process_bytes": processes.get(self.pid),
            "processes": len(processes),
            "device_bytes": self.judge.device_bytes(),
        }

    def finish(self) -> list[Step]:
        """Run to the end, and return all steps. Raises AssertionError if the program fails or is late."""
        while self.next() is not None:
            pass
        why = self.end()
        assert self._process.returncode == 0, why
        return self.steps

    def end(self) -> str:
        """End the program if it still runs; return the end of its output."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                self._process.stdin = None
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._kill()
        self._timer.cancel()
        self._errors.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        late = f"killed after {self.seconds:g} s; " if self.is_late else ""
        return f"{late}{self._process.returncode}: {self.log.read_text(errors='replace')[-3000:]}"

    def stop(self) -> None:
        """Kill the program."""
        self._kill()
        self.end()

    def _end_late(self) -> None:
        self.is_late = True
        self._kill()

    def _kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait()


def module(name: str, *arguments: object) -> list[str]:
    """Return the command for a program of these tests."""
    return [PYTHON, "-P", "-m", f"tests.gpu.programs.{name}", *map(str, arguments)]


def has_module(name: str) -> bool:
    """Return whether the programs' Python has a package."""
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([PYTHON, "-P", "-c", find], check=False, timeout=60).returncode == 0


Start = Callable[..., Program]
