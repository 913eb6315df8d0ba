"""Records every call of NVML by the agent with its raw answer: `python -m tests.agent.recording FILE` writes them.

It runs on any machine with NVML. It changes nothing on a GPU: the agent only reads, and registers for events.
"""

import ctypes
import functools
import json
import sys
import types
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml

from orchestrator.agent.nvml import GpuProblem, Nvml

Call = dict[str, Any]


def plain(answer: Any) -> Any:
    """Return an argument or an answer as JSON: a structure by its fields, a pointer by its type."""
    if answer is None or isinstance(answer, (bool, int, float, str, bytes)):
        return answer.decode() if isinstance(answer, bytes) else answer
    if isinstance(answer, (list, tuple, ctypes.Array)):
        return [plain(one) for one in answer]
    if isinstance(answer, (ctypes.Structure, ctypes.Union)):
        return {field[0]: plain(getattr(answer, field[0])) for field in answer._fields_}
    if isinstance(answer, ctypes._SimpleCData):
        return plain(answer.value)
    if isinstance(answer, pynvml.nvmlFriendlyObject):
        return {name: plain(value) for name, value in vars(answer).items()}
    return type(answer).__name__


class Recorder:
    """Wraps the functions of the binding, and records the calls from outside of it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._is_within = False

    def install(self) -> None:
        """Wrap every function of the binding."""
        for name, function in list(vars(pynvml).items()):
            if name.startswith("nvml") and isinstance(function, types.FunctionType):
                setattr(pynvml, name, self._around(name, function))

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if self._is_within:
                return function(*arguments, **named)
            entry: Call = {"call": name, "arguments": [plain(argument) for argument in arguments]}
            self._is_within = True
            try:
                answer = function(*arguments, **named)
            except pynvml.NVMLError as error:
                entry |= {"error": int(error.value), "text": str(error)}
                raise
            else:
                entry["answer"] = plain(answer)
                return answer
            finally:
                self._is_within = False
                self.calls.append(entry)

        return call


def record() -> dict[str, Any]:
    """Return the agent's calls in its first seconds, and its values from the answers."""
    recorder = Recorder()
    recorder.install()
    nvml = Nvml()
    nvml.open()
    driver, models, read = nvml.driver_version, [gpu.model for gpu in nvml.gpus], []
    for gpu in nvml.gpus:
        try:
            read.append(
                {
                    "gpu": repr(gpu),
                    "sample": repr(nvml.sample(gpu)),
                    "upkeep": repr(nvml.upkeep(gpu)),
                    "processes": repr(nvml.processes(gpu)),
                }
            )
        except GpuProblem as problem:
            read.append({"gpu": repr(gpu), "problem": f"{problem.kind}: {problem}"})
    xids = list(nvml.xids())
    nvml.close()
    unsupported = sorted(
        {f"{entry['call']}: {entry['text']}" for entry in recorder.calls if "error" in entry}
    )
    return {
        "driver": driver,
        "gpus": models,
        "date": datetime.now(UTC).date().isoformat(),
        "errors": unsupported,
        "agent": read,
        "xids": xids,
        "calls": recorder.calls,
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(), indent=1) + "\n")
