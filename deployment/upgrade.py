"""The steps from the installed releases to those of the site file, and which of them cannot be undone."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from packaging.version import Version

from deployment import matrix
from deployment.installed import Installed
from deployment.site import Place, Site

CHANGES_THE_CLUSTER: Final = frozenset({"trident", "deepops", "dra", "orchestrator"})
"""Stages that change what etcd holds."""

_NO_WAY_BACK: Final = {
    "deepops": "objects are stored in the newer form; the way back is the etcd snapshot of before",
    "trident": "its definitions and their stored objects take the newer form",
    "dra": "the driver keeps checkpoints on the nodes that an older one cannot read",
    "ontap": "ONTAP does not go back to an older release with its data",
}


@dataclass(frozen=True)
class Step:
    """A component that changes its release. `irreversible` is why it cannot be undone, `problem` why it is refused."""

    stage: str
    what: str
    before: str
    after: str
    irreversible: str = ""
    problem: str = ""
    place: Place = ()

    def line(self) -> str:
        """Return the step as a line for people."""
        change = f"{self.what} {self.before} -> {self.after}"
        if self.problem:
            return f"{change}, refused: {self.problem}"
        return f"{change}, cannot be undone: {self.irreversible}" if self.irreversible else change

    def record(self) -> dict[str, Any]:
        """Return the step as data for `--json`."""
        return {key: value for key, value in asdict(self).items() if key != "place"}


def steps(site: Site, installed: Installed, dra: str | None, stages: set[str]) -> list[Step]:
    """Return every release change in `stages`; `dra` is the DRA driver's release for the site, if any."""
    releases = {**site.versions, "dra": dra or ""}
    changes = [
        *_kubernetes(releases["kubernetes"], installed.kubelets),
        *_component("trident", "Trident", installed.trident, releases.get("trident", ""), minor=2),
        *_component("dra", "DRA driver", installed.dra, releases["dra"], minor=3),
        *_component("ontap", "ONTAP", installed.ontap, releases.get("ontap", ""), minor=3),
    ]
    return [step for step in changes if step.stage in stages]


def _kubernetes(goal: str, kubelets: dict[str, str]) -> Iterator[Step]:
    releases = sorted({release for release in kubelets.values() if release != goal}, key=_version)
    if not releases:
        return
    oldest, newest, target = _version(releases[0]), _version(releases[-1]), _version(goal)
    problem = ""
    if target.release[:2] < newest.release[:2]:
        problem = (
            f"Kubernetes goes from {releases[-1]} up by one minor release at a time and never back to {goal}: "
            "name what runs in versions.kubernetes, or restore the etcd snapshot (docs/install.md)"
        )
    elif target.major != oldest.major or target.minor - oldest.minor > 1:
        following = f"{oldest.major}.{oldest.minor + 1}"
        way = (
            f"name {following} in versions.kubernetes first, and the next when that runs"
            if matrix.installs(following)
            else f"no DeepOps of the matrix installs {following}: install this site anew; the volumes stay"
        )
        problem = (
            f"Kubernetes goes from {releases[0]} up by one minor release at a time, not to {goal}: {way}"
        )
    irreversible = _NO_WAY_BACK["deepops"] if target.release[:2] > oldest.release[:2] else ""
    before = ", ".join(releases)
    yield Step("deepops", "Kubernetes", before, goal, irreversible, problem, ("versions", "kubernetes"))


def _component(stage: str, what: str, before: str, after: str, *, minor: int) -> Iterator[Step]:
    """Yield the step of a component. Within the first `minor` numbers of the release it can be undone."""
    if not before or not after or _version(before) == _version(after):
        return
    old, new = _version(before).release[:minor], _version(after).release[:minor]
    problem = f"{what} does not go back from {before} to {after}: {_NO_WAY_BACK[stage]}" if new < old else ""
    irreversible = _NO_WAY_BACK[stage] if new > old else ""
    yield Step(stage, what, before, after, irreversible, problem, ("versions", stage))


def _version(release: str) -> Version:
    return Version(release.partition("P")[0].partition("-")[0].partition("+")[0])
