"""`kill -9` at any moment: the log stays, a record can be made from it, and interrupted checks are ERROR."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.validation.fake_target import FakeTarget
from tests.validation.replay import GANG, run_command, settings
from validation.errors import ReportError
from validation.report import log, record
from validation.report.assemble import assemble, read_report, rejudge
from validation.report_command import report
from validation.scenario.schema import Cluster

COUNT = 20
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.validation.killed_runs", str(directory), str(COUNT), "16"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return directory


def test_a_killed_run_leaves_a_log_for_rejudge_and_never_a_pass(killed: Path) -> None:
    cut = [d for d in sorted(killed.iterdir()) if not (d / "report.json").exists()]
    assert len(cut) >= COUNT // 2, "killed too late to tell anything"
    for directory in cut:
        done = CliRunner().invoke(report, ["rejudge", str(directory)])
        assert done.exit_code == 3, done.output
        assert "the run was killed before it wrote its record" in done.output
        assert CliRunner().invoke(report, ["verify", str(directory)]).exit_code == 3
        if isinstance(log.read_log(directory).entries[-1], log.Closed):
            continue  # everything but the record was done
        result = read_report(directory)
        assert result.interrupted == "the run was cut: its log has no end"
        unfinished = [step for step in result.steps if step.circumstances.fault]
        assert {step.verdict for step in unfinished} <= {"ERROR"}
        assert result.verdict == ("ERROR" if unfinished else "INCONCLUSIVE")
    sizes = {(directory / log.NAME).stat().st_size for directory in cut}
    assert len(sizes) > 2, "they were all killed at the same place"


def test_checks_that_ended_before_the_kill_have_the_verdict_of_the_whole_run(killed: Path) -> None:
    whole = {step.id: step.verdict for step in record.read(killed / "whole").steps}
    for directory in killed.iterdir():
        for step in read_report(directory).steps:
            assert step.verdict in {whole[step.id], "ERROR"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole") / "r"
    run_command([GANG], settings(directory, parts=["gangs"]))
    return directory


def test_every_prefix_of_a_log_is_one_of_a_run_that_was_cut(whole: Path, tmp_path: Path) -> None:
    content = (whole / log.NAME).read_bytes()
    first = content.index(b"\n") + 1
    ends = [first, *range(first + 1, len(content), max(1, (len(content) - first) // 150)), len(content) - 1]
    for end in ends:
        (tmp_path / log.NAME).write_bytes(content[:end])
        result = read_report(tmp_path)
        assert result.verdict in {"ERROR", "INCONCLUSIVE"}
        assert result.interrupted == "the run was cut: its log has no end"
        assert rejudge(result, log.read_log(tmp_path)) == []
    (tmp_path / log.NAME).write_bytes(content)
    assert record.encode(read_report(tmp_path)) == (whole / "report.json").read_bytes()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it does not begin with the request"),
        ('{"entry": "opened", "report"', "it does not begin with the request"),
        ("{}\n", "is not a log of a run"),
        ('{"entry": "closed", "ended": "", "durationMs": 1, "timings": {}}\n', "does not begin"),
    ],
)
def test_a_file_that_is_no_log_is_refused_in_a_line(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / log.NAME).write_text(content)
    with pytest.raises(ReportError, match=words):
        read_report(tmp_path)


def test_a_directory_without_anything_is_a_run_that_was_cut_before_it_began(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="neither a record nor a log") as refused:
        read_report(tmp_path)
    assert refused.value.exit_code == 3


def test_a_new_run_in_the_directory_of_another_withdraws_its_report(whole: Path, tmp_path: Path) -> None:
    """Otherwise a killed run would seem to have the verdict of the earlier run."""
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())

    seen: list[bool] = []

    class Looks(FakeTarget):
        async def start(self, cluster: Cluster) -> bool:
            seen.append((tmp_path / "report.json").exists() or (tmp_path / "manifest.sha256").exists())
            return await super().start(cluster)

    run_command([GANG], settings(tmp_path, Looks, parts=["gangs"]))
    assert seen == [False]


def test_the_log_tells_versions_and_bounds(whole: Path) -> None:
    entries = [json.loads(line) for line in (whole / log.NAME).read_text().splitlines()]
    assert entries[0]["entry"] == "opened"
    assert entries[-1]["entry"] == "closed"
    bounds = [entry for entry in entries if entry["entry"] in {"began", "ended"}]
    assert [entry["check"] for entry in bounds[::2]] == [entry["check"] for entry in bounds[1::2]]
    assert assemble(log.read_log(whole)).verdict == "PASS"
