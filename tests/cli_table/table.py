"""How the tables of command lines are written, and how one is carried out.

A table is a list of scenarios, each with

scenario    what it shows
source      where the lines are printed
quotas      GPUs by project, if they are others than before
needs       shell lines that prepare what the lines take for granted
steps       the lines, in order

A step is a line of shell, exactly as it is printed (`line`), with what must come of it:

printed     how the source wraps it, where that is not what it means
input       what a person types into it
exit        its exit code (0)
prints      texts that its standard output has, in this order
errors      texts that its standard error has
columns     the header of the table that it prints
rows        cells of that table, by the name in the first column and by column
lacks       names that are not in that table
runs        workloads whose containers truly run on the nodes afterwards
waits       workloads that have no node afterwards
gone        workloads of which no pod is left afterwards
objects     fields of objects afterwards: `kind/name -n namespace` to `path.of.field` to value
eventually  true: the line is repeated until all of that holds
"""

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport
from orchestrator.names import WORKLOAD_LABEL

DEADLINE_SECONDS = 180
LINE_SECONDS = 300

_OUTPUT_KEYS = ("exit", "prints", "errors", "columns", "rows", "lacks")
_CLUSTER_KEYS = ("runs", "waits", "gone", "objects")
_KEYS = frozenset({"line", "printed", "input", "eventually", *_OUTPUT_KEYS, *_CLUSTER_KEYS})


@dataclass(frozen=True)
class Step:
    """One line and its expected results."""

    line: str
    expected: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """Lines in order."""

    name: str
    quotas: Mapping[str, int]
    needs: tuple[str, ...]
    steps: tuple[Step, ...]


def load(path: Path) -> list[Scenario]:
    """Read a table. Raises ValueError for an unknown key in a step."""
    scenarios = []
    for entry in yaml.safe_load(path.read_text()):
        steps = []
        for raw in entry["steps"]:
            unknown = set(raw) - _KEYS
            if unknown:
                raise ValueError(f"{path.name}, {raw.get('line')}: unknown {sorted(unknown)}")
            steps.append(Step(raw["line"].rstrip("\n"), {key: raw[key] for key in raw if key != "line"}))
        scenarios.append(
            Scenario(entry["scenario"], entry.get("quotas", {}), tuple(entry.get("needs", ())), tuple(steps))
        )
    return scenarios


def cells(text: str) -> tuple[list[str], dict[str, dict[str, str]]]:
    """Read a table: its header, and each row by its first cell. Lines before the header are skipped."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if re.match(r"[A-Z]+ .*[A-Z]", line)), None)
    if start is None:
        return [], {}
    header = re.split(r" {2,}", lines[start].rstrip())
    begins = [match.start() for match in re.finditer(r"(?:(?<=  )|^)\S", lines[start])]
    ends = [*begins[1:], None]
    rows = {}
    for line in lines[start + 1 :]:
        values = [line[begin:end].strip() for begin, end in zip(begins, ends, strict=True)]
        rows[values[0]] = dict(zip(header, values, strict=True))
    return header, rows


class Site:
    """A cluster as a user at a terminal sees it: a shell, `runai`, `kubectl` and a kubeconfig."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self.environment = environment
        self.directory = directory

    def shell(self, line: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run one line of shell unchanged. The exit code is 124 if it does not end in time."""
        return subprocess.run(
            ["timeout", str(LINE_SECONDS), "/bin/bash", "-c", line],
            input=given or "",
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )

    def must(self, line: str) -> str:
        """Run a line that must succeed; return its output."""
        done = self.shell(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def pods(self) -> dict[str, list[dict[str, Any]]]:
        """Return all pods of workloads, by workload."""
        return asyncio.run(self._pods())

    async def _pods(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        # by no start of kubectl: steps are checked again and again
        async with Transport(load_access(Path(self.environment["KUBECONFIG"]))) as transport:
            listed = await transport.list(PODS.path(), dict, params={"labelSelector": WORKLOAD_LABEL})
        for pod in listed.items:
            found.setdefault(pod["metadata"]["labels"][WORKLOAD_LABEL], []).append(pod)
        return found


def carry_out(scenario: Scenario, site: Site) -> None:
    """Run all steps. Raises AssertionError for the first step with a wrong result, with that result."""
    for line in scenario.needs:
        site.must(line)
    for step in scenario.steps:
        done = site.shell(step.line, step.expected.get("input"))
        deadline = time.monotonic() + DEADLINE_SECONDS
        pause_seconds = 0.2
        while (fault := _fault(step, done, site)) and time.monotonic() < deadline:
            if step.expected.get("eventually"):
                done = site.shell(step.line, step.expected.get("input"))
            elif _said(step, done):  # the line itself is wrong, so it is not repeated
                break
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, 1.0)  # each check starts programs
        assert not fault, f"{step.line}\n  {fault}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"


def _fault(step: Step, done: "subprocess.CompletedProcess[str]", site: Site) -> str:
    return _said(step, done) or _did(step, site)


def _said(step: Step, done: "subprocess.CompletedProcess[str]") -> str:
    """Return the error in exit code and output; empty if they are as expected."""
    expected = step.expected
    if done.returncode != expected.get("exit", 0):
        return f"exit code {done.returncode}, not {expected.get('exit', 0)}"
    for stream, texts in (
        (done.stdout, expected.get("prints", [])),
        (done.stderr, expected.get("errors", [])),
    ):
        position = 0
        for text in [texts] if isinstance(texts, str) else texts:
            position = stream.find(text, position)
            if position < 0:
                return f"does not say, or not in this order: {text!r}"
    header, rows = cells(done.stdout)
    if "columns" in expected and header != expected["columns"]:
        return f"columns {header}, not {expected['columns']}"
    for name, wanted in expected.get("rows", {}).items():
        for column, value in wanted.items():
            if rows.get(name, {}).get(column) != str(value):
                return f"row {name!r}: {column} is {rows.get(name, {}).get(column)!r}, not {value!r}"
    there = [name for name in expected.get("lacks", []) if name in rows]
    return f"rows that should not be there: {there}" if there else ""


def _did(step: Step, site: Site) -> str:
    """Return the error in the cluster's state; empty if it is as expected."""
    expected = step.expected
    if expected.keys() & {"runs", "waits", "gone"}:
        pods = site.pods()
        checks: tuple[tuple[str, Callable[[list[dict[str, Any]]], bool]], ...] = (
            ("runs", lambda each: bool(each) and all(_runs(pod) for pod in each)),
            ("waits", lambda each: bool(each) and not any(pod["spec"].get("nodeName") for pod in each)),
            ("gone", lambda each: not each),
        )
        for key, holds in checks:
            for name in expected.get(key, []):
                if not holds(pods.get(name, [])):
                    phases = [pod["status"]["phase"] for pod in pods.get(name, [])]
                    return f"{name} is not as expected ({key}); its pods are {phases or 'gone'}"
    for which, fields in expected.get("objects", {}).items():
        found = site.shell(f"kubectl get {which} -o json")
        if found.returncode != 0:
            return f"{which}: {found.stderr.strip()}"
        for path, value in fields.items():
            actual = _at(json.loads(found.stdout), path)
            if actual != value:
                return f"{which}: {path} is {actual!r}, not {value!r}"
    return ""


def _runs(pod: Mapping[str, Any]) -> bool:
    """Return whether containers of a real container runtime run: simulated ones have no container id."""
    containers = pod["status"].get("containerStatuses", [])
    return bool(containers) and all(
        "running" in each["state"] and each.get("containerID", "").startswith("containerd://")
        for each in containers
    )


def _at(document: Any, path: str) -> Any:
    """Return the field at `a.b.0.c`. A quoted part may contain dots."""
    for quoted, plain in re.findall(r"'([^']*)'|([^.]+)", path):
        key = quoted or plain
        if isinstance(document, list):
            document = document[int(key)] if int(key) < len(document) else None
        elif isinstance(document, dict):
            document = document.get(key)
        else:
            return None
    return document
