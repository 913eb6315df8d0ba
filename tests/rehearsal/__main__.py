"""`make rehearsal`: `python -m tests.rehearsal [--keep | --down]`."""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from orchestrator.errors import MusterError
from orchestrator.progress import terminal_reporter
from tests.deployment.hosts.bases import Unusable
from tests.rehearsal import (
    chain,
    faults,
    interruptions,
    kills,
    machines,
    membership,
    namespace,
    site,
    upgrades,
)

RECORDS = chain.ROOT / "build" / "rehearsal"


def main(arguments: list[str]) -> int:
    """Run the steps, or continue after the last step that succeeded. Return the exit code."""
    parser = argparse.ArgumentParser(prog="rehearsal")
    parser.add_argument("--keep", action="store_true", help="leave hosts and cluster running")
    parser.add_argument("--faults", action="store_true", help="try each fault after the record")
    parser.add_argument("--kill", action="store_true", help="kill muster after each write of its journal")
    parser.add_argument("--down", action="store_true", help="remove what an earlier run left, and do no more")
    given = parser.parse_args(arguments)
    reporter = terminal_reporter()
    if given.down:
        chain.Chain(reporter).destroy()
        return 0
    absent = chain.missing()
    if absent:
        print(f"rehearsal: not run; this machine lacks: {'; '.join(absent)}", file=sys.stderr)
        return 1
    rehearsal = chain.Chain(reporter)
    if _is_stale(rehearsal):
        rehearsal.destroy()
        rehearsal = chain.Chain(reporter)
    began = time.monotonic()
    try:
        rehearsal.run(_steps(rehearsal, with_faults=given.faults, with_kills=given.kill))
    except (chain.StepFailed, Unusable, MusterError) as error:
        print(
            f"rehearsal: {error}. Go on with: make rehearsal; remove everything: make rehearsal DOWN=1",
            file=sys.stderr,
        )
        return 1
    finally:
        reporter.close()
    verdict = _keep_record(rehearsal, round(time.monotonic() - began))
    if not given.keep:
        rehearsal.destroy()
    return 0 if verdict in {"PASS", "WAIVED"} else 1


def _steps(rehearsal: chain.Chain, *, with_faults: bool, with_kills: bool) -> tuple[chain.Step, ...]:
    """Return the steps of the chain. Raises StepFailed if the cluster is one that a run without faults began."""
    begun = bool(rehearsal.state.get("seconds"))
    if with_faults and begun and not rehearsal.has_faults:
        raise chain.StepFailed("these hosts were begun without FAULTS=1; first remove them")
    has_faults = with_faults or rehearsal.has_faults
    rehearsal.state["faults"] = has_faults
    rehearsal.save()
    return (
        *chain.TO_BARE_HOSTS,
        *(interruptions.STEPS if has_faults else ()),
        chain.INSTALL,
        *chain.TO_CLUSTER,
        *((*faults.STEPS, *membership.STEPS, *faults.AFTERWARDS, *upgrades.UPGRADE) if has_faults else ()),
        *chain.RECORD,
        *((kills.STEP,) if with_kills else ()),
        *(upgrades.REMOVAL if has_faults else ()),
    )


def _is_stale(rehearsal: chain.Chain) -> bool:
    """Return whether an earlier run left hosts that no longer run, as after a reboot of the machine."""
    hosts = machines.load(rehearsal.folder / "hosts")
    return bool(hosts) and not (namespace.exists() and all(machine.is_up() for machine in hosts))


def _keep_record(rehearsal: chain.Chain, seconds: int) -> str:
    """Copy the record out of the folder, and print times, verdict and stand-ins. Return the verdict."""
    target = RECORDS / time.strftime("%Y%m%dT%H%M%S")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(rehearsal.record, target)
    report = json.loads((target / "report.json").read_text())
    times = rehearsal.state["seconds"]
    summary = {
        "verdict": report["verdict"],
        "headline": report["headline"],
        "seconds": times,
        "seconds of this run": seconds,
        "packets refused": namespace.refused_packets(),
        "interfaces": namespace.interfaces(),
        "stand-ins": site.STAND_INS,
    }
    Path(f"{target}.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1))
    print(f"record: {target / 'report.html'}")
    return str(report["verdict"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
