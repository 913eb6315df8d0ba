"""`make rehearsal KILL=all`: muster is killed after each write of its journal, and each `resume` ends at the same site.

The stages are those that take seconds. kubespray is killed once by `FAULTS=1`, and at each write on stand-ins by
tests/deployment.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

from tests.rehearsal.chain import Chain, Step, StepFailed

_RANGES: Final = (("preflight", "container_toolkit"), ("orchestrator", "orchestrator"))
_POLL_SECONDS: Final = 0.02


def kill_everywhere(chain: Chain) -> None:
    """Kill an installation after its first write, the next one after its second, and so on. Raises StepFailed."""
    for first, last in _RANGES:
        name = f"{first} to {last}"
        if name in chain.state.get("kills", {}):
            continue
        chain.muster("killed-first", "install", "--from", first, "--until", last)
        before = _site(chain)
        writes = 1
        while _kill_after(chain, writes, first, last):
            chain.muster("killed-resumed", "resume")
            after = _site(chain)
            if after != before:
                changed = sorted(name for name in before | after if before.get(name) != after.get(name))
                raise StepFailed(f"after a kill at write {writes} of {name}, other are {changed}")
            chain.report(f"killed after write {writes} of {name}: the same site after resume")
            writes += 1
        chain.state.setdefault("kills", {})[name] = writes - 1
        chain.save()


def _kill_after(chain: Chain, writes: int, first: str, last: str) -> bool:
    """Kill a new installation after this many writes of its journal; return False if it ended with fewer."""
    journal = chain.folder / "state" / "rehearsal" / "journal.jsonl"
    before = _lines(journal)
    running = chain.popen("killed", *chain.words("install", "--from", first, "--until", last))
    while _lines(journal) < before + writes:
        if running.poll() is not None:
            if running.returncode:
                raise StepFailed(f"an installation of {first} to {last} fails; see {chain.log('killed')}")
            return False
        time.sleep(_POLL_SECONDS)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    return True


def _lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n")


def _site(chain: Chain) -> dict[str, Any]:
    """Return the decision on each stage, and labels and settings of each object of the operator."""
    planned = json.loads(chain.muster("killed-plan", "plan", "--json"))
    found: dict[str, Any] = {f"stage {stage['stage']}": stage["decision"] for stage in planned["stages"]}
    kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"
    for item in json.loads(chain.kubectl("get", kinds, "-n", "muster-system", "-o", "json"))["items"]:
        settings = {key: value for key, value in item.items() if key not in {"status", "metadata"}}
        labels = item["metadata"].get("labels")
        found[f"{item['kind']} {item['metadata']['name']}"] = settings | {"labels": labels}
    return found


STEP: Final = Step("muster is killed after each write", kill_everywhere)
