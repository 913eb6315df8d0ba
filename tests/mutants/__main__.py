"""`make mutants`: break the scheduler on purpose, and show which scenario or test notices each defect.

Exit code 0 only if every defect makes its scenario FAIL at the step that the catalogue names, or makes its test fail.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import Mutant, mutants, write

PATIENCE = "0.4"
"""Value of `--patience`: scenarios have generous deadlines, which a defect should not wait for in full."""

TEST_SECONDS = 300
SCENARIO_SECONDS = 900
"""Deadlines: a scenario takes at most a minute and a test a second, but a defect may let either hang."""


class CannotRun(Exception):
    """A scenario or test ended without a verdict. The message says why."""


@dataclass(frozen=True)
class Outcome:
    name: str
    scenario: str
    verdict: str
    failed: tuple[str, ...]
    seconds: float
    killed: bool


def validate(scenario: str, out: Path, orchestrator: Path | None) -> tuple[str, tuple[str, ...]]:
    """Run the scenario and those that it continues. Return the verdict, and the ids of the steps and invariants that
    failed.
    """
    environment = dict(os.environ)
    if orchestrator is not None:
        environment["MUSTER_OPERATOR_PYTHONPATH"] = str(orchestrator)
    command = [
        sys.executable,
        "-c",
        "import sys; from orchestrator.cli.main import main; sys.exit(main())",
        "validate",
    ]
    command += ["--scenario", scenario, "--out", str(out), "--patience", PATIENCE, "--fail-fast"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=SCENARIO_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"the scenario did not end within {SCENARIO_SECONDS} s") from error
    record = out / "report.json"
    if not record.exists():
        raise CannotRun(f"muster validate left no report:\n{done.stdout}\n{done.stderr}")
    report = json.loads(record.read_text())
    return report["verdict"], tuple(step["id"] for step in report["steps"] if step["verdict"] == "FAIL")


def check(test: str, directory: Path) -> tuple[str, tuple[str, ...]]:
    """Run a test against the copy of the repository in `directory`. Return the verdict, and the tests that failed."""
    # This expression also selects tests that run only if their mark is asked for.
    chosen = ["-m", "installer or not installer"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "-rfE",
        *chosen,
        test,
    ]
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=False, timeout=TEST_SECONDS,
            env=os.environ | {"PYTHONPATH": str(directory)},  # for commands that the test starts
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"the test did not end within {TEST_SECONDS} s") from error
    if done.returncode not in (0, 1):
        raise CannotRun(f"the test could not be run:\n{done.stdout}\n{done.stderr}")
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if not failed and any(line.startswith("ERROR ") for line in done.stdout.splitlines()):
        raise CannotRun(f"the test was not set up or not taken down:\n{done.stdout}")
    if not failed and " passed" not in done.stdout:
        raise CannotRun(f"the test did not run, as where it needs what is not here:\n{done.stdout}")
    return "FAIL" if failed else "PASS", tuple(failed)


def kill(mutant: Mutant) -> Outcome:
    """Run the scenario or test of one defect against a copy of the repository that has the defect."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="muster-mutant-") as name:
        directory = Path(name)
        write(mutant, directory / "mutant")
        try:
            if mutant.scenario:
                verdict, failed = validate(mutant.scenario, directory / "report", directory / "mutant")
            else:
                verdict, failed = check(mutant.killed_by, directory / "mutant")
        except CannotRun as error:  # the other defects are still tried
            verdict, failed = "ERROR", (str(error),)
    killed = verdict == "FAIL" and any(each.startswith(mutant.killed_by) for each in failed)
    where = mutant.scenario or "a test"
    return Outcome(
        mutant.name,
        where,
        verdict,
        failed[:1] if not mutant.scenario else failed,
        time.monotonic() - begin,
        killed,
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these defects")
    parser.add_argument("--jobs", type=int, default=2, help="labs at once")
    options = parser.parse_args(arguments)
    chosen = [each for each in mutants() if not options.names or each.name in options.names]
    print(f"{len(chosen)} defects, {options.jobs} labs at once", flush=True)
    width = max(len(each.name) for each in chosen)
    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, outcome in enumerate(pool.map(kill, chosen), start=1):
            failed = ", ".join(outcome.failed) or "nothing failed"
            word = "killed  " if outcome.killed else "SURVIVED"
            print(
                f"{number:>3}  {outcome.name:<{width}}  {word}  {outcome.scenario:<18}  {outcome.verdict:<5}"
                f"  {outcome.seconds:5.1f} s  {failed}",
                flush=True,
            )
            if not outcome.killed:
                survivors.append(outcome.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} defects killed", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
