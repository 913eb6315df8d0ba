"""The verdicts on results of training runs, as the command prints them."""

from pathlib import Path

import msgspec
import pytest

from tests.validation.workloads.results import SECOND, result
from validation.catalogue.catalogue import load_catalogue
from validation.catalogue.thresholds import PATH, load_thresholds
from validation.errors import CatalogueError
from validation.judge.training.training_result import Ended, TrainingResult
from validation.judge.verdict import Verdict
from validation.workloads.resnet50.verdict import judge, main


def written(path: Path, run: TrainingResult) -> str:
    path.write_bytes(msgspec.json.encode(run))
    return str(path)


def test_every_requirement_of_the_part_has_a_judgement() -> None:
    ids = {requirement.id for requirement in load_catalogue().part_requirements(["training"])}
    judged = judge(result(), load_thresholds())
    assert ids - judged.keys() == {"training.log"}, "no check of it exists"
    assert judged.keys() <= ids


def test_a_requirement_without_a_check_is_inconclusive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([written(tmp_path / "r.json", result()), "--profile", "tr4858"])
    assert "training.log: INCONCLUSIVE no check of it exists yet\n" in capsys.readouterr().out


def test_a_finished_run_passes_and_the_rate_of_the_papers_gpus_does_not_apply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "r.json", result())
    assert main([path, "--profile", "lab"]) == 1, "nothing of it applies, so nothing passed"
    capsys.readouterr()
    assert main([path]) == 0
    log, first, second, _, third, measured = capsys.readouterr().out.splitlines()
    assert log == "training.log: NOT_APPLICABLE no check of it exists"
    assert (first, second) == ("training.resnet50: PASS", "training.two-mounts: PASS")
    assert third == "training.throughput: NOT_APPLICABLE a figure of V100 GPUs and their software"
    assert measured.startswith("measured: 2560 images/s (95 %: 2560 to 2560) over 50 windows")


def test_a_slow_run_on_the_papers_pod_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([written(tmp_path / "r.json", result()), "--profile", "tr4858"]) == 1
    assert "training.throughput: FAIL 2560 to 2560 images/s, at least 6530.59 by" in capsys.readouterr().out


def test_the_ratio_to_synthetic_images_counts_too(tmp_path: Path) -> None:
    fast = [2560 * SECOND // 6600] * 50
    thresholds = load_thresholds()
    faster = result([2560 * SECOND // 7000] * 50)
    ok = judge(result(fast), thresholds, synthetic=result(fast))["training.throughput"]
    slow = judge(result(fast), thresholds, synthetic=faster)["training.throughput"]
    assert (ok.verdict, slow.verdict) == (Verdict.PASS, Verdict.FAIL)
    one = judge(result(fast), thresholds, one_host=result(fast))["training.throughput"]
    assert one.verdict == Verdict.FAIL
    assert "two-hosts-to-one" in one.reason


@pytest.mark.parametrize("ended", [Ended.DATA_FAULT, Ended.DEVICE_FAULT, Ended.STOPPED])
def test_a_run_that_did_not_end_well_is_never_green(ended: Ended, tmp_path: Path) -> None:
    for profile in ("lab", "current", "tr4858"):
        assert main([written(tmp_path / "r.json", result(ended=ended)), "--profile", profile]) == 1


def test_another_document_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text('{"kind": "TrainingResult"}')
    assert main([str(tmp_path / "r.json")]) != 0
    assert main([str(tmp_path / "none.json")]) != 0
    assert main([written(tmp_path / "r.json", result()), "--profile", "labs"]) == 2
    assert capsys.readouterr().err.count("verdict: ") == 3


def test_thresholds_have_source_and_date_and_an_error_names_the_line(tmp_path: Path) -> None:
    thresholds = load_thresholds()
    sources = [(of.source, of.date) for of in thresholds.training_rates]
    sources += [(of.source, of.date) for of in thresholds.training_ratios]
    sources += [(of.source, of.date) for of in thresholds.hosts]
    assert sources
    for source, date in sources:
        assert source
        assert date.startswith("2026-")
    changed = tmp_path / "thresholds.yaml"
    changed.write_text(PATH.read_text().replace("imagesPerSecond: 6530.59", "images: 6530.59"))
    with pytest.raises(CatalogueError, match=r"thresholds\.yaml:\d+: "):
        load_thresholds(changed)
