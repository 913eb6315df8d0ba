"""Honest records of ten different runs, each signed, and a signed redaction of each."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from musterlab.gpus.models import parse
from tests.validation.fake_target import FakeTarget, WitnessedTarget
from tests.validation.host_defects import discarding
from tests.validation.host_doubles import FakeHosts
from tests.validation.host_judgements import NAMES
from tests.validation.recorder_double import RecorderDouble
from tests.validation.replay import GANG, VICTIM, run_command, settings
from tests.validation.report.test_origin import of_another_version, retitled
from tests.validation.report.test_record import HoldsTwice, keys
from tests.validation.test_not_fooled import NeverBinds, NothingThere, waivers
from tests.validation.use_targets import Uses
from validation.report import log, record, statement
from validation.report.assemble import assemble
from validation.report.baseline import baseline_of
from validation.report.redact import redact
from validation.report.verify import verify
from validation.report.write import write
from validation.run.session import Settings
from validation.scenario.commands import Submit
from validation.scenario.loaded import SHIPPED
from validation.targets.real_lab import OperatorImage, RealNodes
from validation.targets.recorder import Recorder

HOSTS = [*(SHIPPED / "hosts").glob("*.yaml"), GANG, *(SHIPPED / "hosts-after").glob("*.yaml")]
SECTION_48 = SHIPPED / "tr4858" / "section-4.8.scenario.yaml"
Make = Callable[[Path], object]
OTHERS = "genomics"
"""A project that the run did not create."""


class OfASite(Uses):
    """A double that reports itself as an existing cluster, whose GPUs are used."""

    kind = "cluster"


class OfRealNodes(WitnessedTarget):
    """A double that reports itself as a lab with real nodes. A pod of a project of others waits in it."""

    kind = "lab-real"

    @contextlib.asynccontextmanager
    async def recording(self, recorder: Recorder) -> AsyncIterator[None]:
        async with super().recording(recorder):
            mine = self.pod(Submit("p", "x", 1000, preemptible=True, pods=1, min_member=1, interactive=False))
            self.tell(mine, namespace=f"muster-{OTHERS}", project=OTHERS)
            yield


def on_real_nodes(out: Path) -> None:
    image = OperatorImage("docker.io/library/muster:x", "sha256:" + "ab" * 32, Path("x.tar"))
    nodes = RealNodes(2, parse("h100x4", "device-plugin"), image)
    run_command([VICTIM], settings(out, OfRealNodes, real_nodes=nodes, parts=["victims", "witnesses"]))


def with_waived_hosts(out: Path) -> None:
    """Run on hosts of which one has a fault that a waiver excuses."""
    out.parent.mkdir(exist_ok=True)
    accepted = waivers(out.parent, "hosts-after/layer/links", fact="discard", host=NAMES[1])
    chosen = Settings(
        target="cluster", out=out, open_target=OfASite, open_recorder=RecorderDouble, open_hosts=discarding,
        parts=["gangs", "hosts"], waivers=accepted,
    )  # fmt: skip
    _, report = run_command(HOSTS, chosen)
    assert report is not None
    assert [step.id for step in report.steps if step.verdict == "WAIVED"] == ["hosts-after/layer/links"]


def beside_an_earlier_record(out: Path) -> None:
    """Run on hosts twice; the second run compares the hosts with the record of the first."""

    def hosts() -> FakeHosts:
        found = FakeHosts(names=NAMES)
        site = msgspec.structs.replace(found.scope.site, name="north")
        found.scope = msgspec.structs.replace(found.scope, site=site)
        if earlier.exists():
            found.scope = msgspec.structs.replace(found.scope, baseline=baseline_of(earlier))
        return found

    earlier = out.with_name(f"{out.name}-earlier")
    for directory in (earlier, out):
        chosen = Settings(
            target="cluster", out=directory, open_target=OfASite, open_recorder=RecorderDouble, open_hosts=hosts,
            parts=["hosts"],
        )  # fmt: skip
        _, report = run_command(HOSTS, chosen)
    assert report is not None
    drift = next(step for step in report.steps if step.id == "hosts-after/layer/drift")
    assert drift.verdict == "PASS", drift.reason


def of(target: type[FakeTarget], *paths: Path, **more: Any) -> Make:
    """Return a function that runs these scenarios on a target."""
    parts = ["gangs", "victims", "fairness", "views"]
    return lambda out: run_command(list(paths), settings(out, target, parts=parts, **more))


def changed(change: Callable[[list[dict[str, Any]]], object]) -> Make:
    """Return a function that writes the record that another build of muster makes."""

    def make(out: Path) -> None:
        run_command([GANG], settings(out, parts=["gangs"]))
        entries = [json.loads(line) for line in (out / log.NAME).read_text().splitlines()]
        change(entries)
        lines = [
            json.dumps(entry, separators=(",", ":"), sort_keys=True, ensure_ascii=False) for entry in entries
        ]
        (out / log.NAME).write_text("".join(f"{line}\n" for line in lines))
        write(assemble(log.read_log(out)), out)

    return make


RUNS: Sequence[Make] = (
    of(FakeTarget, GANG), of(HoldsTwice, GANG, VICTIM), of(NeverBinds, GANG, VICTIM), of(NothingThere, GANG),
    of(Uses, SECTION_48), on_real_nodes, with_waived_hosts, beside_an_earlier_record,
    changed(retitled("invariant", "view")), changed(of_another_version),
)  # fmt: skip


def honest(directory: Path, runs: Sequence[Make]) -> tuple[list[Path], Path]:
    """Return records of these runs with a redaction of each, and the public key that belongs to all signatures."""
    directory.mkdir(exist_ok=True)
    private, public = keys(directory, "customer")
    records = list[Path]()
    for number, make in enumerate(runs):
        make(directory / f"r{number}")
        redact(directory / f"r{number}", directory / f"public{number}")
        for path in (directory / f"r{number}", directory / f"public{number}"):
            statement.sign(path, record.read(path), private, verify(path).notes)
            records.append(path)
    return records, public
