"""Tests validation/judge/hosts/drift.py and validation/report/baseline.py: `muster validate --site … --baseline`."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forks
from tests.validation.host_doubles import NAMES, nccl, nvidia_smi
from tests.validation.replay import assert_second_judge_agrees
from tests.validation.report.log_changes import Json
from tests.validation.report.test_trend import record_of
from tests.validation.test_hosts_over_ssh import Site, hosts_over_ssh, steps
from validation.report import log, record
from validation.report.assemble import assemble
from validation.report.redact import redact
from validation.report.write import write

DRIFT = "drift"


def muster(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `muster` with these arguments."""
    return forks.run([*map(str, arguments)], os.environ, 300)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the record of a healthy site with the rate of NCCL."""
    folder = tmp_path_factory.mktemp("site")
    with hosts_over_ssh(folder) as healthy:
        healthy.validate(folder / "recorded", "--host-test", "nccl")
    assert steps(folder / "recorded")[DRIFT] == (
        "INCONCLUSIVE",
        "no baseline was given: --baseline names an earlier record",
    )
    return folder / "recorded"


@pytest.fixture
def earlier(recorded: Path, tmp_path: Path) -> Path:
    """Return a copy of that record, which the test can change."""
    return Path(shutil.copytree(recorded, tmp_path / "earlier"))


def compared(site: Site, out: Path, baseline: Path) -> tuple[str, str]:
    """Validate the site again, and return verdict and reason of the comparison. Both judges agree on it."""
    done = site.validate(out, "--host-test", "nccl", "--baseline", str(baseline))
    assert done.returncode == 1, done.stderr
    assert_second_judge_agrees(out)
    return steps(out)[DRIFT]


def test_equal_figures_pass_and_the_certificate_names_the_baseline(
    site: Site,
    earlier: Path,
    tmp_path: Path,
) -> None:
    run, out = record.read(earlier).volatile.run, tmp_path / "r"
    verdict, reason = compared(site, out, earlier)
    assert (verdict, reason) == (
        "PASS",
        f"2 figures compared with the baseline {run.id} of {run.started[:10]}",
    )
    assert [row.layers[DRIFT].words for row in record.read(out).hosts or ()] == [
        f"1 figure compared with the baseline {run.id} of {run.started[:10]}"
    ] * 2
    assert muster("report", "verify", out, "--baseline", earlier).returncode == 0
    assert muster("report", "rejudge", out).returncode == 0
    key, public = tmp_path / "key", tmp_path / "public"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    assert muster("report", "sign", out, "--key", key).returncode == 0
    assert muster("report", "verify", out, "--key", public).returncode == 0
    for page in ("report.html", "report.md"):
        assert run.id in (out / page).read_text()
    shutil.rmtree(earlier)  # the record alone has all figures
    assert muster("report", "rejudge", out).returncode == 0


def test_a_decay_within_the_absolute_limits_is_named_with_host_figure_and_repair(
    site: Site,
    earlier: Path,
    tmp_path: Path,
) -> None:
    (site.hosts["dgx1-2"].output / "nccl").write_text(nccl(122.0))
    assert compared(site, tmp_path / "r", earlier)[0] == "PASS"  # 95.3 %
    (site.hosts["dgx1-2"].output / "nccl").write_text(nccl(121.0))
    verdict, reason = compared(site, tmp_path / "s", earlier)
    assert steps(tmp_path / "s")["nccl"][0] == "PASS"  # above the threshold, and near the other host
    assert (verdict, reason) == (
        "FAIL",
        "dgx1-2: nccl-all-reduce is 121000 MB/s, was 128000, and may be at least 95 % -> reset the GPU",
    )
    assert "hosts.burn-in" in muster("report", "show", tmp_path / "s").stdout
    refused = site.validate(tmp_path / "t", "--host-test", "nccl", "--baseline", str(tmp_path / "s"))
    assert (refused.returncode, "hosts-after/layer/drift is FAIL in it" in refused.stderr) == (2, True)
    assert not (tmp_path / "t").exists(), "refused before anything runs"


def change_driver(site: Site) -> None:
    for host in site.hosts.values():
        text = nvidia_smi(host.name).replace("580.82.09", "580.95.05")
        (host.output / "nvidia-smi").write_text(text)


def replace_a_gpu(site: Site) -> None:
    path = site.hosts["dgx1-2"].output / "nvidia-smi"
    path.write_text(path.read_text().replace("-7</uuid>", "-9</uuid>"))


def rename(site: Site) -> None:
    site.content["hosts"]["dgx1-9"] = site.content["hosts"].pop("dgx1-2")


def replace_all_gpus(site: Site) -> None:
    for host in site.hosts.values():
        (host.output / "nvidia-smi").write_text(nvidia_smi(f"other{host.name[-1]}"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_driver, "dgx1-1: driver was 580.82.09, is 580.95.05"),
        (replace_a_gpu, f"dgx1-2 GPU-{b'dgx1-2'.hex()}-7 is not there any more"),
        (rename, "dgx1-9 is not in it"),
        (
            replace_all_gpus,
            "is of another cluster: give a record of this one to --baseline (it has none of the 16",
        ),
    ],
)
def test_a_site_that_does_not_fit_the_baseline_is_inconclusive_by_name(
    change: Callable[[Site], None],
    words: str,
    site: Site,
    earlier: Path,
    tmp_path: Path,
) -> None:
    change(site)
    verdict, reason = compared(site, tmp_path / "r", earlier)
    assert verdict == "INCONCLUSIVE"
    assert words in reason


def test_a_host_that_only_the_baseline_has_is_named_beside_the_others(
    site: Site,
    earlier: Path,
    tmp_path: Path,
) -> None:
    del site.content["hosts"]["dgx1-2"]
    verdict, reason = compared(site, tmp_path / "r", earlier)
    assert (verdict, reason.endswith("; not measured now: dgx1-2")) == ("PASS", True), reason


def test_a_figure_that_only_this_run_measured_is_inconclusive(
    site: Site,
    tmp_path: Path,
) -> None:
    site.validate(tmp_path / "earlier")
    verdict, reason = compared(site, tmp_path / "r", tmp_path / "earlier")
    assert verdict == "INCONCLUSIVE"
    assert "dgx1-1: nccl-all-reduce was not measured, is 128000" in reason


def test_a_figure_that_no_record_can_hold_is_left_out_and_the_next_record_verifies(
    site: Site,
    tmp_path: Path,
) -> None:
    path = site.hosts["dgx1-1"].output / "nvidia-smi"
    whole, rates = path.read_text(), site.hosts["dgx1-1"].output / "nccl"
    path.write_text(whole.replace("<retired_count>0<", f"<retired_count>{'9' * 30}<"))
    rates.write_text(nccl(1e300))
    site.validate(tmp_path / "earlier", "--host-test", "nccl")
    path.write_text(whole)
    rates.write_text(nccl())
    verdict, reason = compared(site, tmp_path / "r", tmp_path / "earlier")
    assert (verdict, "dgx1-1 is not in it" in reason) == ("INCONCLUSIVE", True)
    done = muster("report", "verify", tmp_path / "r")
    assert done.returncode == 0, done.stdout


def rewrite(directory: Path, change: Callable[[Json], None]) -> None:
    """Change the first entry of the log, and write the record that follows."""
    entries = [json.loads(line) for line in (directory / log.NAME).read_text().splitlines()]
    change(entries[0]["report"])
    lines = [
        json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False) for entry in entries
    ]
    (directory / log.NAME).write_text("\n".join(lines) + "\n")
    write(assemble(log.read_log(directory)), directory)


def test_a_baseline_that_cannot_be_one_is_refused_before_anything_runs(
    site: Site,
    earlier: Path,
    tmp_path: Path,
) -> None:
    def copy(name: str) -> Path:
        shutil.copytree(earlier, tmp_path / name)
        return tmp_path / name

    changed, cut, older, elsewhere = (copy(name) for name in ("changed", "cut", "older", "elsewhere"))
    (changed / "report.md").write_text("PASS\n")
    for name in ("report.json", "manifest.sha256"):
        (cut / name).unlink()
    rewrite(older, lambda report: report["tool"].update(version="0.0.9"))
    rewrite(elsewhere, lambda report: report["scope"]["hosts"]["site"].update(name="another"))
    redact(earlier, tmp_path / "public")
    (tmp_path / "none").mkdir()
    scope = record.read(earlier).scope.hosts
    record_of(earlier, tmp_path / "future", "2099-01-01", (128.0, 128.0), scope.site.name if scope else "")
    muster("validate", "--target", "planner", "--scenario", "muster-victim", "--out", tmp_path / "planner")
    for name, words in {
        "changed": "does not verify: report.md",
        "cut": "does not verify: manifest.sha256: is missing: the run was cut",
        "older": "is of another build, muster 0.0.9, this is 0.1.0; validate once with this build",
        "elsewhere": "is of another cluster, another with dgx1-1, dgx1-2; give a record of",
        "public": "is redacted; give the record from which it was made",
        "none": "manifest.sha256",
        "future": "started at 2099-01-01T02:00:00Z, which is not yet; set the clock",
        "planner": "has no hosts; give a record that was made with --site",
    }.items():
        done = site.validate(tmp_path / "r", "--baseline", str(tmp_path / name))
        assert done.returncode == 2, (name, done.stdout)
        assert words in done.stderr, name
        assert str(tmp_path / name) in done.stderr, name
        assert not (tmp_path / "r").exists()
    done = site.validate(earlier, "--baseline", str(earlier / ".." / earlier.name))
    assert (done.returncode, "is also --out, which the run replaces" in done.stderr) == (2, True)
    assert muster("report", "verify", earlier).returncode == 0
    assert "--site names it" in muster("validate", "--target", "cluster", "--baseline", earlier).stderr


def test_a_record_with_other_figures_of_its_baseline_is_found_with_the_baseline(
    site: Site,
    earlier: Path,
    tmp_path: Path,
) -> None:
    (site.hosts["dgx1-2"].output / "nccl").write_text(nccl(121.0))
    assert compared(site, tmp_path / "r", earlier)[0] == "FAIL"

    def ease(report: Json) -> None:
        for host in report["scope"]["hosts"]["baseline"]["hosts"]:
            host["figures"]["nccl-all-reduce"] = 121_000

    rewrite(tmp_path / "r", ease)
    assert steps(tmp_path / "r")[DRIFT][0] == "PASS"
    assert muster("report", "verify", tmp_path / "r").returncode == 0  # nothing else of it contradicts this
    done = muster("report", "verify", tmp_path / "r", "--baseline", earlier)
    assert (done.returncode, "the record has other figures of it" in done.stdout) == (1, True)
    done = muster("report", "verify", earlier, "--baseline", tmp_path / "r")
    assert (done.returncode, "the record names no baseline" in done.stdout) == (1, True)

    def ease_limits(report: Json) -> None:
        for limit in report["scope"]["hosts"]["baseline"]["limits"]:
            limit["minimumPercent"] = 50

    rewrite(tmp_path / "r", ease_limits)
    done = muster("report", "verify", tmp_path / "r")
    assert (done.returncode, "the limits are not as the file has them" in done.stdout) == (1, True)


def test_a_redacted_record_keeps_its_comparison_without_names(
    site: Site,
    earlier: Path,
    tmp_path: Path,
) -> None:
    (site.hosts["dgx1-2"].output / "nccl").write_text(nccl(121.0))
    compared(site, tmp_path / "r", earlier)
    redact(tmp_path / "r", tmp_path / "public")
    verdict, reason = steps(tmp_path / "public")[DRIFT]
    assert (verdict, reason[:7]) == ("FAIL", "host-2:")
    assert not any(name in (tmp_path / "public" / log.NAME).read_text() for name in NAMES)
    assert muster("report", "verify", tmp_path / "public").returncode == 0
