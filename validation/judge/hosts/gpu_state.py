"""Judges the texts of nvidia-smi about the health of a GPU. An unknown text does not prove health."""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hostfacts.repairs import Repair, needs, of_action
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.gpu_elements import (
    ALIKE,
    ANY,
    COUNTS,
    FREE,
    LEAST,
    MEASURED,
    NEEDED,
    PARENTS,
    RANGES,
    SILENT,
    VARIES,
    WORDS,
    Aspect,
    Count,
    Words,
)
from validation.judge.hosts.host_facts import HostGpu, HostGpus, System, some
from validation.judge.hosts.host_layer import DeclaredHost, system_of
from validation.judge.verdict import Verdict


class Said(NamedTuple):
    """An element whose text is not that of a healthy GPU."""

    aspect: Aspect
    verdict: Verdict
    finding: str


_LOST: Final = re.compile(
    r"unknown error|requires? reset|is lost|\bERR!|fallen off|not initialized|uninitialized", re.IGNORECASE
)
"""Texts that appear instead of a value if a GPU does not answer."""
_NUMBER: Final = re.compile(
    r"-?[0-9]+(?:\.[0-9]+)?(?: ?(?:MHz|C|W|mV|MiB|KB/s|MB/s|GB/s|%|us|ms|bank\(s\))|x)?"
)
_REFUSED: Final = "not found|not loaded|mismatch|in use by|no data"
SICK: Final = re.compile(
    r"err|fail|(?<!de)fault|lost|crash|unknown|invalid|corrupt|degrad|\bbad\b|dead|panic|timeout|hung|unhealthy|reset"
    r"|missing|abort|broken|critical|fatal|" + _REFUSED,
    re.IGNORECASE,
)
"""Words about faults, which do not occur in any name, version or position."""


def judge_elements(hosts: Mapping[str, HostGpus], aspect: Aspect) -> Judgement:
    """Judge the elements of this aspect; FAIL names a fault, INCONCLUSIVE an unknown word."""
    problems: list[Said] = []
    for name, host in sorted(hosts.items()):
        problems += read_elements(name, host.elements)
        for gpu in host.gpus:
            problems += read_elements(f"{name} {gpu.bus_id}", gpu.elements)
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        findings = [one.finding for one in problems if (one.aspect, one.verdict) == (aspect, verdict)]
        if findings:
            return Judgement(verdict, some(findings))
    return Judgement(Verdict.PASS)


def read_elements(place: str, elements: Iterable[tuple[str, str]]) -> list[Said]:
    """Return the elements whose texts are not those of a healthy GPU."""
    problems = (_said(place, path, text) for path, text in elements if not _is_well(path, text))
    return [problem for problem in problems if problem is not None]


@functools.lru_cache(1 << 16)
def _is_well(path: str, text: str) -> bool:
    """Return whether the element is that of a healthy GPU. Most elements of all GPUs are equal, so this is cached."""
    return _said("", path, text) is None


def _said(place: str, path: str, text: str) -> Said | None:
    name = path.rpartition("/")[2]
    if _LOST.search(text):
        return Said(Aspect.STATE, Verdict.FAIL, needs(f"{place}: {name} is {text}", Repair.RESET))
    if text in SILENT and name not in NEEDED:
        return None
    key = "/".join(path.split("/")[-2:])
    words = WORDS.get(key) or WORDS.get(name)
    count = COUNTS.get(key) or COUNTS.get(name) or LEAST.get(name)
    if words is not None:
        return _worded(place, name, text, words)
    if count is not None:
        return _counted(place, name, text, count, least=name in LEAST)
    return None if _is_known(path, name, text) else _unknown(place, path, text)


def _worded(place: str, name: str, text: str, words: Words) -> Said | None:
    if text in words.healthy:
        return None
    verdict = words.other if text else Verdict.INCONCLUSIVE
    repair = of_action(text) if name == _ACTION else words.repair
    return Said(words.aspect, verdict, needs(f"{place}: {name} is {text or 'empty'}", repair))


_ACTION: Final = "gpu_recovery_action"


def _counted(place: str, name: str, text: str, count: Count, *, least: bool) -> Said | None:
    match = re.fullmatch(r"([0-9]+)(?: bank\(s\))?", text)
    if match is None:
        finding = f"{place}: {name} is {text[:60]!r}, which is no number"
        return Said(count.aspect, Verdict.INCONCLUSIVE, finding)
    number = int(match[1])
    if number >= count.most if least else number <= count.most:
        return None
    return Said(count.aspect, count.higher, needs(f"{place}: {name} is {text}", count.repair))


def _is_known(path: str, name: str, text: str) -> bool:
    """Return whether muster knows the element, and its text is one that a healthy GPU can have."""
    *parents, _ = path.split("/")
    if not PARENTS.issuperset(parents):
        return False
    if name in ANY:
        return True
    if name in MEASURED:
        return bool(_NUMBER.fullmatch(text)) and _is_in_range(name, text)
    return name in FREE and "\n" not in text and not SICK.search(text)


def _is_in_range(name: str, text: str) -> bool:
    if name not in RANGES:
        return True
    least, most = RANGES[name]
    return least <= float(text.partition(" ")[0]) <= most


def _unknown(place: str, path: str, text: str) -> Said:
    finding = f"{place}: {path} is {text[:60]!r}, which muster does not know"
    return Said(Aspect.STATE, Verdict.INCONCLUSIVE, finding)


def judge_alike(hosts: Mapping[str, HostGpus]) -> Judgement:
    """Compare the GPUs of the same product and driver.

    Return INCONCLUSIVE if an element has no value on one GPU, and has one on another. Also if a setting or a maximum
    differs.
    """
    gpus = [
        (f"{name} {gpu.bus_id}", (host.driver, gpu.model), _spoken(gpu))
        for name, host in sorted(hosts.items())
        for gpu in host.gpus
    ]
    kinds: dict[tuple[str, str], set[str]] = {}
    for _, kind, paths in gpus:
        kinds.setdefault(kind, set()).update(paths)
    missing = [
        f"{place}: {path} is absent or N/A, and not on other GPUs"
        for place, kind, paths in gpus
        for path in sorted(kinds[kind] - paths)
    ]
    missing += _unlike(hosts)
    return Judgement(Verdict.INCONCLUSIVE, some(missing)) if missing else Judgement(Verdict.PASS)


def _unlike(hosts: Mapping[str, HostGpus]) -> list[str]:
    """Return the findings about settings and maxima that differ between GPUs of the same product and driver."""
    values: dict[tuple[str, str, str], dict[str, str]] = {}
    for name, host in sorted(hosts.items()):
        for gpu in host.gpus:
            for path, text in gpu.elements:
                if ALIKE.fullmatch(path) and text not in SILENT:
                    values.setdefault((host.driver, gpu.model, path), {}).setdefault(
                        f"{name} {gpu.bus_id}", text
                    )
    found = []
    for (_, _, path), texts in values.items():
        usual = Counter(texts.values()).most_common(1)[0][0]
        found += [f"{place}: {path} is {text}, not {usual}" for place, text in texts.items() if text != usual]
    return found


def _spoken(gpu: HostGpu) -> set[str]:
    """Return the paths of the elements that have a value. Elements that only some GPUs of a model have are left out."""
    return {path for path, text in gpu.elements if text and text not in SILENT and not VARIES.search(path)}


RECOVERY_DRIVER: Final = 570
"""The first branch of the driver that reports the recovery action of a GPU."""
_HISTORIES: Final = ("remapped_rows/remapped_row_pending", "remapped_rows/remapped_row_failure")


def judge_silence(
    hosts: Mapping[str, HostGpus], declared: Sequence[DeclaredHost], systems: Sequence[System], aspect: Aspect
) -> Judgement:
    """Return INCONCLUSIVE if a GPU does not have the elements that a verdict on this aspect needs."""
    generations = {
        host.name: system.pcie_generation
        for host in declared
        if (system := system_of(host, systems)) is not None
    }
    silent: list[str] = []
    for name, host in sorted(hosts.items()):
        branch = re.match(r"[0-9]+", host.driver)
        for gpu in host.gpus:
            if aspect == Aspect.STATE and branch is not None and int(branch[0]) >= RECOVERY_DRIVER:
                said = {path: text for path, text in gpu.elements if path == "gpu_recovery_action"}
                is_silent = said["gpu_recovery_action"] in SILENT if said else True
                if not said or (is_silent and generations.get(name, 0) >= AMPERE):
                    silent.append(f"{name} {gpu.bus_id}: nothing says gpu_recovery_action")
            if aspect == Aspect.MEMORY and gpu.ecc_enabled:
                remaps = all(gpu.text(path) in {"Yes", "No"} for path in _HISTORIES)
                if not remaps and gpu.text("retired_pages/pending_retirement") not in {"Yes", "No"}:
                    silent.append(f"{name} {gpu.bus_id}: nothing says whether memory waits for a repair")
    return Judgement(Verdict.INCONCLUSIVE, some(silent)) if silent else Judgement(Verdict.PASS)


AMPERE: Final = 4
"""PCIe generation of Ampere: GPUs of this generation and later ones always report their recovery action."""
