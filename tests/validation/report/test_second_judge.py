"""An independent second judge, written from the documents, agrees with ours on every verdict of every record."""

import ast
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.validation import altered_hosts
from tests.validation.fake_target import (
    FakeTarget,
    HidesEvictions,
    NeverStarts,
    SwapsDevices,
    WitnessedTarget,
)
from tests.validation.host_doubles import NAMES, FakeHosts, Output
from tests.validation.host_judgements import NAMES as NODES
from tests.validation.mutant_targets import CannotShow, ShowsNothing, ShowsWhatIsNotSo
from tests.validation.replay import (
    GANG,
    TR4858,
    VICTIM,
    assert_second_judge_agrees,
    run_command,
    settings,
    verdicts_of_the_report,
)
from tests.validation.report.test_record import EvictsTheWrongOne, HoldsTwice
from tests.validation.test_hosts_not_fooled import in_maintenance, without_hosts
from tests.validation.test_not_fooled import Interrupted, LosesAGang, NeverBinds, NothingThere, waivers
from validation.judge.events import PodSeen
from validation.report import log
from validation.report.assemble import assemble
from validation.report.record import read
from validation.report.write import write
from validation.scenario.loaded import SHIPPED

SECOND_JUDGE = Path(__file__).parents[1] / "second_judge.py"
INTERACTIVE = SHIPPED / "muster" / "interactive.scenario.yaml"
FRACTIONS = SHIPPED / "muster" / "fractions.scenario.yaml"
BUNDLES = [
    *((FakeTarget, [path]) for path in (TR4858, GANG, VICTIM, INTERACTIVE, FRACTIONS)),
    *((NeverBinds, [path]) for path in (TR4858, GANG, VICTIM)),
    *((NothingThere, [path]) for path in (GANG, VICTIM)),
    *((LosesAGang, [path]) for path in (GANG,)),
    *((Interrupted, [path]) for path in (TR4858, VICTIM)),
    *((HoldsTwice, [path]) for path in (TR4858, GANG, VICTIM, INTERACTIVE, FRACTIONS)),
    *((EvictsTheWrongOne, [path]) for path in (VICTIM,)),
    (FakeTarget, [GANG, VICTIM, INTERACTIVE]),
    *((liar, [TR4858]) for liar in (ShowsWhatIsNotSo, ShowsNothing, CannotShow)),
    *((liar, [VICTIM]) for liar in (WitnessedTarget, SwapsDevices, NeverStarts, HidesEvictions)),
]
HOSTS = [SHIPPED / "hosts", VICTIM, SHIPPED / "hosts-after"]


def of_site(**changed: Any) -> Callable[[], FakeHosts]:
    """Return a factory of healthy hosts whose site file has these changes."""

    def build() -> FakeHosts:
        hosts = FakeHosts(names=NODES)
        site = msgspec.structs.replace(hosts.scope.site, **changed)
        hosts.scope = msgspec.structs.replace(hosts.scope, site=site)
        return hosts

    return build


TOOLS = ("nvidia-smi", "topology", "kernel-log", "counters", "write", "fio", "interfaces", "clock-source")


def ends(output: Output | str) -> Callable[[], FakeHosts]:
    """Return a factory of hosts; on the second, each of TOOLS ends this way. Each tool has its own checks, so one run
    is enough.
    """
    return lambda: FakeHosts({(NODES[1], tool): output for tool in TOOLS}, names=NODES)


HOST_BUNDLES: dict[str, Callable[[], FakeHosts]] = {
    "whole": lambda: FakeHosts(names=NODES),
    "whole, other names": lambda: FakeHosts(names=NAMES),
    "in maintenance": in_maintenance,
    "no host": without_hosts,
    "no mounts": of_site(mounts=[]),
    "nothing declared": of_site(driver="", mtu=0, networks=[], servers=[], mount_options=[]),
    "golden": of_site(golden=NODES[0]),
    "golden of nobody": of_site(golden="n9"),
    "other VLANs": of_site(other_vlans=["roce"]),
    "options that mount shows otherwise": of_site(mount_options=["nfsvers=3", "intr", "hard"]),
    "options that are missing": of_site(mount_options=["vers=4.1"]),
    "no host has nvidia-smi": lambda: FakeHosts(
        {(name, "nvidia-smi"): Output("", 127) for name in NODES}, names=NODES
    ),
    "model of which nothing is known": lambda: FakeHosts(names=NODES, model="dgx-2"),
    "tools fail": ends(Output("failure", 3)),
    "tools are missing": ends(Output("", 127)),
    "tools are not heard": ends("cannot be reached"),
    "tools are silent": ends(Output("")),
    "tools say nonsense": ends(Output('{"jobs": [{}]} <gpu/>')),
}


def test_the_second_judge_imports_nothing_of_ours() -> None:
    parts = [
        SECOND_JUDGE.with_name(f"second_judge_{name}.py")
        for name in (
            "api",
            "gpus",
            "kernel",
            "hosts",
            "views",
            "pages",
            "use",
            "limits",
            "upkeep",
            "groups",
            "drift",
            "digests",
            "lines",
        )
    ]
    tree = ast.parse("".join(path.read_text() for path in (SECOND_JUDGE, *parts)))
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {name.partition(".")[0] for name in modules} <= {
        *sys.stdlib_module_names,
        *(path.stem for path in parts),
    }
    assert len(BUNDLES) == 27


@pytest.mark.parametrize("name", HOST_BUNDLES)
def test_two_judges_agree_on_every_verdict_on_hosts(name: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path / "r", profile="current", patience_percent=10, open_hosts=HOST_BUNDLES[name])
    run_command(HOSTS, chosen)
    assert_second_judge_agrees(tmp_path / "r")


@pytest.mark.parametrize(
    ("target", "paths"), BUNDLES, ids=[f"{target.__name__}-{len(p)}-{p[0].stem}" for target, p in BUNDLES]
)
def test_two_judges_agree_on_every_verdict(
    target: type[FakeTarget], paths: list[Path], tmp_path: Path
) -> None:
    accepted = waivers(tmp_path, "muster-victim/reclaim")
    run_command(paths, settings(tmp_path / "r", target, waivers=accepted))
    assert_second_judge_agrees(tmp_path / "r")


class NamesAGpuThatIsNotThere(FakeTarget):
    """Reports the first job as a holder of a ninth GPU, and is honest about all other jobs."""

    def bind(self, pod: PodSeen) -> PodSeen:
        bound = super().bind(pod)
        return self.tell(bound, devices=(0, 1, 2, 8)) if pod.uid == "uid-1" else bound


def test_a_wrong_state_fails_in_every_scenario_that_it_lasts_into(tmp_path: Path) -> None:
    run_command([SHIPPED / "muster"], settings(tmp_path / "r", NamesAGpuThatIsNotThere), "muster-projects*")
    verdicts = {step.id: step.verdict for step in read(tmp_path / "r").steps}
    for name in ("projects", "projects-changed", "projects-deleted"):
        assert verdicts[f"muster-{name}/invariant/gpu-capacity"] == "FAIL"
    assert_second_judge_agrees(tmp_path / "r")


@pytest.fixture(scope="module")
def whole_hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report on two healthy hosts, compared with a baseline."""
    out = tmp_path_factory.mktemp("hosts") / "r"
    hosts = FakeHosts(names=NODES).compared_with(FakeHosts(names=NODES))
    run_command(HOSTS, settings(out, profile="current", open_hosts=lambda: hosts))
    return out


def test_the_second_judge_is_a_program_that_needs_nothing_of_ours(whole_hosts: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", SECOND_JUDGE, whole_hosts], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == verdicts_of_the_report(whole_hosts)


def judge_log(entries: list[Any], directory: Path) -> list[str]:
    """Write a record with these entries as its log; return our verdicts on its layers."""
    directory.mkdir(exist_ok=True)
    (directory / log.NAME).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    report = assemble(log.read_log(directory))
    write(report, directory)
    return [step.verdict for step in report.steps if step.kind == "layer"]


@pytest.mark.parametrize("quarter", [1, 2, 3])
def test_two_judges_agree_on_runs_on_hosts_that_were_cut(
    quarter: int, whole_hosts: Path, tmp_path: Path
) -> None:
    entries = [json.loads(line) for line in (whole_hosts / log.NAME).read_text().splitlines()]
    verdicts = judge_log(entries[: len(entries) * quarter // 4], tmp_path)
    assert {"PASS", "ERROR"} <= set(verdicts)
    assert_second_judge_agrees(tmp_path)


# The table of hosts in HOST_BUNDLES has each kind of output; more seeds take half a second each and rarely differ.
@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.rare) for seed in range(5, 30))]
)
def test_two_judges_agree_for_any_output_of_hosts(seed: int, whole_hosts: Path, tmp_path: Path) -> None:
    entries = [json.loads(line) for line in (whole_hosts / log.NAME).read_text().splitlines()]
    observed = [entry["event"] for entry in entries if entry["entry"] == "observed"]
    observed.sort(
        key=lambda event: (event.get("host", ""), event.get("tool", ""))
    )  # hosts run at the same time
    altered_hosts.alter(random.Random(seed), entries[0]["report"]["scope"]["hosts"], observed)  # noqa: S311
    judge_log(entries, tmp_path)
    assert_second_judge_agrees(tmp_path)
