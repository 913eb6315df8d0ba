"""orchestrator/agent/nvml.py and its double, compared with the answers of drivers: recorded/nvml-*.json.

`make test-gpu` records them (tests/agent/recording.py) on a machine with a GPU. The UUIDs in them are invented.
"""

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pynvml
import pytest

from orchestrator.agent.model import Gpu, Process, Sample
from orchestrator.agent.nvml import Nvml
from tests.agent.doubles import MIB, FakeDriver
from tests.agent.recording import plain

RECORDINGS: Final = sorted((Path(__file__).parent / "recorded").glob("nvml-*.json"))


def as_object(answer: Any) -> Any:
    """Return the binding's result from its JSON: a structure is read by its fields."""
    if isinstance(answer, dict):
        return SimpleNamespace(**{name: as_object(value) for name, value in answer.items()})
    return [as_object(one) for one in answer] if isinstance(answer, list) else answer


class Replay:
    """The binding with the driver's answer to each call and its arguments: in order, and then the last one again."""

    def __init__(self, calls: list[dict[str, Any]]) -> None:
        self._answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for entry in calls:
            self._answers[self._key(entry["call"], entry["arguments"])].append(entry)
        self.names = {entry["call"] for entry in calls}

    @staticmethod
    def _key(name: str, arguments: list[Any]) -> str:
        return json.dumps([name, arguments])

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace every recorded function."""
        for name in self.names:
            monkeypatch.setattr(pynvml, name, self._function(name))

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            entries = self._answers[self._key(name, [plain(argument) for argument in arguments])]
            entry = entries.pop(0) if len(entries) > 1 else entries[0]
            if "error" in entry:
                raise pynvml.NVMLError(entry["error"])
            return as_object(entry["answer"])

        call.__name__ = name
        return call


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(request.param.read_text())
    Replay(document["calls"]).install(monkeypatch)
    return document


def test_the_agent_reads_the_recorded_answers_of_the_driver_as_on_that_machine(
    recorded: dict[str, Any],
) -> None:
    nvml = Nvml()
    nvml.open()
    read = [
        {
            "gpu": repr(gpu),
            "sample": repr(nvml.sample(gpu)),
            "upkeep": repr(nvml.upkeep(gpu)),
            "processes": repr(nvml.processes(gpu)),
        }
        for gpu in nvml.gpus
    ]
    nvml_driver, models = nvml.driver_version, [gpu.model for gpu in nvml.gpus]
    assert list(nvml.xids()) == recorded["xids"]
    nvml.close()
    assert (nvml_driver, recorded["gpus"]) == (recorded["driver"], models)
    assert read == recorded["agent"]


def form(value: Gpu | Sample | Process) -> dict[str, str]:
    """Return the form of each field: its type, and the pattern of texts and amounts."""
    forms = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        forms[field.name] = type(content).__name__
        if isinstance(content, str):
            forms[field.name] = (
                re.sub(r"[0-9a-f]", "0", content) if field.name in {"uuid", "bus_id"} else "a text"
            )
        elif field.name == "memory_bytes" and isinstance(value, Gpu):
            forms[field.name] = f"whole MiB: {content % MIB == 0}"
    return forms


def test_the_double_answers_as_a_driver_does_in_the_same_form(recorded: dict[str, Any]) -> None:
    real, double = Nvml(), FakeDriver()
    real.open()
    double.open()
    for gpu in real.gpus:
        assert form(double.gpus[0]) == form(gpu)
        said = {
            name: kind for name, kind in form(double.sample(double.gpus[0])).items() if kind != "NoneType"
        }
        sample = form(real.sample(gpu))
        assert said == {name: sample[name] for name in said}
        double.temperatures[0], double.throttle_bits[0] = 40, 1
        all_said = form(double.sample(double.gpus[0]))
        assert (all_said["temperature_celsius"], all_said["throttle_bits"]) == (
            sample["temperature_celsius"], sample["throttle_bits"],
        )  # fmt: skip
    real.close()
