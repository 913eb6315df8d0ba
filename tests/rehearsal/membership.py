"""A host leaves the rehearsed cluster and joins it again: `make rehearsal FAULTS=1`. All other hosts stay unchanged."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import yaml

from tests.rehearsal import machines, site, storage
from tests.rehearsal.chain import MUSTER, Chain, Step, StepFailed, announce_gpus, serve_storage

_HOST: Final = site.WORKERS[-1]


def leave(chain: Chain) -> None:
    """Remove a host; its node is gone, and the site is complete without its entry. Raises StepFailed."""
    directories = ("-i", str(chain.folder / "site"), "--state-dir", str(chain.folder / "state"))
    chain.call("removed", *MUSTER, "node", "remove", _HOST, *directories, "--yes")
    if _HOST in _nodes(chain):
        raise StepFailed(f"the node {_HOST} is there after its removal; see removed.log")
    with _site_without_host(chain):
        chain.muster("plan-without", "plan")


def join(chain: Chain) -> None:
    """Install the host again, which was restarted; all other hosts keep their nodes. Raises StepFailed."""
    (machine,) = (each for each in machines.load(chain.folder / "hosts") if each.name == _HOST)
    machine.kill()
    machine.start(chain.folder / "packages", chain.folder / storage.VOLUMES)
    before = _nodes(chain)
    chain.muster("added", "install", "--add", _HOST, "--until", "orchestrator")
    after = _nodes(chain)
    if {**before, _HOST: after.get(_HOST)} != after or _HOST not in after:
        raise StepFailed(f"nodes by UID are {after}, before the host joined they were {before}")
    chain.stop("storage")
    announce_gpus(chain)
    serve_storage(chain)


@contextmanager
def _site_without_host(chain: Chain) -> Iterator[None]:
    """Delete the entry of the host from the site file, and put it back."""
    document = chain.folder / "site" / "site.yml"
    complete = document.read_text()
    values = yaml.safe_load(complete)
    del values["hosts"][_HOST], values["vars"]["verify_gpus_by_host"][_HOST]
    document.write_text(yaml.safe_dump(values, sort_keys=False, width=120))
    try:
        yield
    finally:
        document.write_text(complete)


def _nodes(chain: Chain) -> dict[str, str]:
    """Return the UID of each node by name."""
    found = json.loads(chain.kubectl("get", "nodes", "-o", "json"))["items"]
    return {node["metadata"]["name"]: node["metadata"]["uid"] for node in found}


STEPS: Final = (Step("a host leaves", leave), Step("the host joins again", join))
