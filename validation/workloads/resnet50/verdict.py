"""The verdicts on training runs: `python -m validation.workloads.resnet50.verdict RESULT.json`.

The verdicts are on the requirements of the part `training` of the catalogue. Requirements that the profile excludes are
NOT_APPLICABLE, but the measured values are still printed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from validation.catalogue.catalogue import load_catalogue
from validation.catalogue.thresholds import Thresholds, load_thresholds
from validation.errors import ReportError, ValidationError
from validation.judge.check_verdict import Judgement
from validation.judge.requirements import WITHOUT_CHECK
from validation.judge.training.training_result import (
    TrainingResult,
    describe,
    judge_mounts,
    judge_rate,
    judge_ratio,
    judge_training,
    rate_of,
)
from validation.judge.verdict import ACCEPTABLE, Verdict, gravest

MOUNTS: Final = 2
"""The value of `--num_mounts` in the paper."""


def judge(
    result: TrainingResult,
    thresholds: Thresholds,
    *,
    synthetic: TrainingResult | None = None,
    one_host: TrainingResult | None = None,
) -> dict[str, Judgement]:
    """Return the judgement on each requirement of the part `training`, by id.

    The rate is compared with the rates of the other results.
    """
    rates = [judge_rate(result, thresholds.training_rates)]
    for base, of in ((synthetic, "real-to-synthetic"), (one_host, "two-hosts-to-one")):
        rates += [judge_ratio(result, base, thresholds.ratio(of))] if base is not None else []
    verdict = gravest([rate.verdict for rate in rates])
    return {
        "training.resnet50": judge_training(result),
        "training.workload": judge_training(result),
        "training.two-mounts": judge_mounts(result, MOUNTS),
        "training.throughput": Judgement(verdict, "; ".join(rate.reason for rate in rates)),
    }


def load_result(path: Path) -> TrainingResult:
    """Return the document in the file. Raises ReportError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=TrainingResult)
    except (OSError, msgspec.DecodeError) as error:
        raise ReportError(f"{path} is not the document of a training run: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Print the verdicts. Return 0 if all verdicts are acceptable and at least one is PASS, else 1."""
    parser = argparse.ArgumentParser(prog="verdict", description="Judge a training run of ResNet-50.")
    parser.add_argument("result", type=Path)
    parser.add_argument("--synthetic", type=Path, help="the same with synthetic images")
    parser.add_argument("--one_host", type=Path, help="the same on one host")
    parser.add_argument("--profile", default="current", help="the kind of site (current)")
    options = parser.parse_args(argv)
    try:
        catalogue = load_catalogue()
        profile = catalogue.profile(options.profile)
        result = load_result(options.result)
        judgements = judge(
            result,
            load_thresholds(),
            synthetic=load_result(options.synthetic) if options.synthetic else None,
            one_host=load_result(options.one_host) if options.one_host else None,
        )
    except ValidationError as error:
        sys.stderr.write(f"verdict: {error}\n")
        return error.exit_code
    verdicts = []
    for requirement in catalogue.part_requirements(["training"]):
        excluded = profile.excludes(requirement)
        judged = judgements.get(requirement.id, WITHOUT_CHECK)
        judgement = Judgement(Verdict.NOT_APPLICABLE, excluded) if excluded else judged
        verdicts.append(judgement.verdict)
        sys.stdout.write(f"{requirement.id}: {judgement.verdict} {judgement.reason}".rstrip() + "\n")
    rate = rate_of(result)
    if rate is not None:
        sys.stdout.write(f"measured: {describe(rate)}\n")
    return 0 if Verdict.PASS in verdicts and all(verdict in ACCEPTABLE for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
