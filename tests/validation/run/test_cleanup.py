"""After a scenario, all its jobs are deleted, even if one of them was refused, so that the next scenarios run."""

from pathlib import Path

from tests.validation.fake_target import FakeTarget
from tests.validation.replay import run_command, settings
from validation.report.record import Command
from validation.scenario.loaded import SHIPPED

REFUSED = "netapp1"
SCENARIOS = [SHIPPED / "tr4858" / "training.scenario.yaml", SHIPPED / "muster" / "gang.scenario.yaml"]


class RefusesDirectories(FakeTarget):
    """A cluster that refuses jobs which mount directories of nodes."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if line.startswith(f"muster submit {REFUSED} "):
            return Command(line, 1, started_ms, 1, stderr="Error: -v/--volume /mnt is not possible")
        if line.startswith("muster delete ") and REFUSED in line.split():
            return Command(line, 1, started_ms, 1, stderr=f"Error: The job {REFUSED} does not exist")
        return await super().execute(line, started_ms=started_ms)


def test_a_job_that_was_refused_blocks_no_other_scenario(tmp_path: Path) -> None:
    _, report = run_command(SCENARIOS, settings(tmp_path / "r", RefusesDirectories, profile="current"))
    assert report is not None
    verdicts = {step.id: step.verdict for step in report.steps if step.kind == "step"}
    assert verdicts["netapp1/run"] == "FAIL"
    assert {verdict for name, verdict in verdicts.items() if name.startswith("muster-gang/")} == {"PASS"}
