"""Judges the digests of exact computations that a job repeated on each GPU: all must be the digests of the exact
results.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.events import OutputSeen
from validation.judge.verdict import Verdict

LEAST_REPEATS: Final = 3
KNOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "gpu": {
        "product": "5aa13a62c1ce95695a372e6149e02d016ab6f8d41d28cfb038b1d3f5815497d1",
        "half": "b01770221a141bef15fa90d37f0917d1d9a4a34cb11291f432021f9f8e176f62",
        "training": "48fa6212cdc18d44f5f7ee46336bb75b598d26077bb80fd63bbb57ae11ba3a48",
    },
    "cpu": {
        "product": "90d15b98f225ad1ab163b5392badf21cd653319245d57ac88b19d15f55f35fb9",
        "half": "782fe55dac8ea798afad426154a71569fae12458fd41e3e84adfb383890f1d53",
        "training": "de9379dedf91ac57156c2a57283a05b6e8de68f7ff2086b0ebb3a92c42f13f31",
    },
}
"""The digests of the exact results of `validation.workloads.digests`, by kind of device and computation."""
PROCESSOR: Final = "CPU "
"""Start of the model of each processor."""
MAX_NAMED: Final = 8
"""Maximum number of findings in a reason."""
MAX_OTHERS: Final = 64
"""Maximum number of further devices that a reason names, without their findings."""

_Text = Annotated[str, msgspec.Meta(max_length=100, pattern=r"^[ -~]*$(?!\n)")]
_Problem = Annotated[str, msgspec.Meta(max_length=300, pattern=r"^[ -~]*$(?!\n)")]
_Computation = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{1,20}$(?!\n)")]
_Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


class DeviceDigests(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The digests of one device: for each computation the number of repeats that had each digest.

    `index` counts the devices of the pod in the order of their PCI addresses. A `problem` is an error of the device,
    or the reason for missing digests.
    """

    index: int
    uuid: _Text
    model: _Text
    library: _Text
    digests: dict[_Computation, dict[_Digest, Annotated[int, msgspec.Meta(ge=1)]]]
    problem: _Problem = ""


class DigestsResult(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The document that a pod of the job prints: the digests of its devices, each computed `repeats` times."""

    api_version: Literal["muster.dev/v1alpha1"]
    kind: Literal["DigestsResult"]
    device_kind: Literal["gpu", "cpu"]
    repeats: int
    devices: list[DeviceDigests]


@dataclass(frozen=True, slots=True)
class KnownGpus:
    """The GPUs of the cluster that do not come from the judged job.

    `of_node` is the number of GPUs of each node. `indices` are those that the agents reported, by node and UUID.
    """

    of_node: Mapping[str, int]
    indices: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class _Device:
    """The entry of a device, with the output and the document that it comes from."""

    output: OutputSeen
    document: DigestsResult
    entry: DeviceDigests
    label: str
    """Node and index. The index is that of the agent, else that within the pod."""

    @property
    def name(self) -> str:
        """Return node, index and UUID."""
        return f"{self.label} ({self.entry.uuid or 'UUID not read'})"


_Finding = tuple[str, str]
"""The label of a device, such as `n1 GPU 2`, or the name of a pod; and a sentence about it."""


def parse_digests(line: str) -> DigestsResult | None:
    """Return the document of a pod; None if the line is no such document."""
    try:
        return msgspec.json.decode(line, type=DigestsResult)
    except (msgspec.DecodeError, UnicodeError):
        return None


def judge_digests(device: str, devices: int, outputs: Sequence[OutputSeen], gpus: KnownGpus) -> Judgement:
    """Return the verdict on the outputs of all pods of a job.

    The job must have used this number of devices of the kind `device`. A wrong device is named before each other
    doubt.
    """
    documents = [
        (output, result)
        for output in outputs
        if not output.problem and (result := parse_digests(output.line)) is not None
    ]
    found = [
        _Device(output, result, one, _label(output, one, gpus))
        for output, result in documents
        for one in result.devices
    ]
    wrong = [_all_named([*_wrong(found), *_repeated(found)]), _all_named([*_failed(device, outputs)])]
    unread = [
        f"{output.node}: {result.devices[0].problem if result.devices else 'no device'}"
        for output, result in documents
        if not any(one.digests for one in result.devices)
    ]
    lost = [f"the output of {one.pod} could not be read: {one.problem}" for one in outputs if one.problem]
    if any(wrong):
        doubts = _some([*lost, *(f"not read: {one}" for one in unread)])
        return Judgement(Verdict.FAIL, "; ".join(filter(None, [*wrong, doubts])))
    if lost:
        return Judgement(Verdict.ERROR, _some(lost))
    if unread:
        return Judgement(Verdict.INCONCLUSIVE, f"not read: {_some(unread)}")
    return _judge_whole(device, devices, found, gpus)


def _judge_whole(device: str, devices: int, found: Sequence[_Device], gpus: KnownGpus) -> Judgement:
    """Return the verdict on devices of which each has digests, and none has a wrong one."""
    if len(found) != devices:
        return Judgement(Verdict.FAIL, f"{len(found)} devices computed, not {devices}")
    short = next((one.name for one in found if not _is_whole(one)), "")
    if short:
        return Judgement(
            Verdict.ERROR,
            f"less evidence than the check needs: {short} has not {LEAST_REPEATS} whole repeats",
        )
    doubts = [*_uncounted(found, gpus), *(_unknown(found, gpus) if device == "gpu" else ())]
    if doubts:
        return Judgement(Verdict.INCONCLUSIVE, _some(doubts))
    repeats = min(one.document.repeats for one in found)
    libraries = _some(sorted({one.entry.library for one in found}))
    return Judgement(Verdict.PASS, f"exact results of {devices} devices in {repeats} repeats, by {libraries}")


def _wrong(found: Sequence[_Device]) -> Iterator[_Finding]:
    """Yield a finding for each device that has a wrong result, reports an error, or computed nothing beside others of
    its pod.
    """
    seen: dict[tuple[str, str], set[frozenset[str]]] = defaultdict(set)
    for one in found:
        for computation, counts in one.entry.digests.items():
            seen[one.entry.library, computation].add(frozenset(counts))
    for one in found:
        known = KNOWN[one.document.device_kind]
        wrong = {
            computation: counts
            for computation, counts in sorted(one.entry.digests.items())
            if len(counts) > 1 or (computation in known and counts.keys() - {known[computation]})
        }
        if wrong:
            of_library = all(len(seen[one.entry.library, name]) == 1 == len(wrong[name]) for name in wrong)
            words = _differences(wrong)
            words += f", as on every device with {one.entry.library}" if of_library else ""
            yield one.label, needs(f"{one.name}: {words}", Repair.SUPPORT if of_library else Repair.REPLACE)
        elif one.entry.digests and one.entry.problem:
            yield one.label, needs(f"{one.name} reported: {one.entry.problem}", Repair.SUPPORT)
        elif not one.entry.digests and any(other.digests for other in one.document.devices):
            problem = one.entry.problem or "no digest"
            yield one.label, needs(f"{one.name} computed nothing: {problem}", Repair.SUPPORT)


def _differences(wrong: Mapping[str, Mapping[str, int]]) -> str:
    """Return the differences of results from the exact ones."""
    steady = [computation for computation, counts in wrong.items() if len(counts) == 1]
    unsteady = [
        f"{len(counts)} different results of {computation} in {sum(counts.values())} repeats"
        for computation, counts in wrong.items()
        if len(counts) > 1
    ]
    other = [f"another result of {', '.join(steady)} than the exact one"] if steady else []
    return " and ".join([*unsteady, *other])


def _repeated(found: Sequence[_Device]) -> Iterator[_Finding]:
    """Yield a finding for each device that is there twice, by its UUID or by its index within a pod."""
    uuids = Counter(one.entry.uuid for one in found if one.entry.uuid)
    indices = Counter((one.output.uid, one.output.pod, one.entry.index) for one in found)
    for one in found:
        if uuids[one.entry.uuid] > 1 or indices[one.output.uid, one.output.pod, one.entry.index] > 1:
            yield one.label, f"{one.name}: device {one.entry.index} of {one.output.pod} is there twice"


def _failed(device: str, outputs: Sequence[OutputSeen]) -> Iterator[_Finding]:
    """Yield a finding for each pod that failed, printed no document, or computed on another kind of device."""
    for output in outputs:
        if output.problem:
            continue
        result = parse_digests(output.line)
        if output.exit_code:
            yield output.pod, f"{output.pod} ended with exit code {output.exit_code}"
        elif result is None:
            yield output.pod, f"{output.pod} printed no document of digests"
        elif result.device_kind != device or (
            device == "gpu" and any(one.model.startswith(PROCESSOR) for one in result.devices)
        ):
            yield output.pod, f"{output.pod} did not compute on a {device}"


def _is_whole(one: _Device) -> bool:
    """Return whether the device has a digest of each computation for each repeat, and enough repeats."""
    repeats = one.document.repeats
    totals = {computation: sum(counts.values()) for computation, counts in one.entry.digests.items()}
    known = KNOWN[one.document.device_kind]
    return repeats >= LEAST_REPEATS and totals == dict.fromkeys(known, repeats)


def _uncounted(found: Sequence[_Device], gpus: KnownGpus) -> Iterator[str]:
    """Yield each node of which fewer devices computed than it has GPUs."""
    read = Counter(one.output.node for one in found)
    for node, number in sorted(gpus.of_node.items()):
        if read[node] < number:
            yield f"not read: {number - read[node]} of {number} GPUs of {node}"


def _unknown(found: Sequence[_Device], gpus: KnownGpus) -> Iterator[str]:
    """Yield each GPU whose model or UUID is unknown to the job or to the agent of its node."""
    with_agent = {node for node, _ in gpus.indices}
    for one in found:
        if not one.entry.model or not one.entry.uuid:
            yield f"not read: model or UUID of {one.name}"
        elif one.output.node not in with_agent:
            yield f"only the job names {one.name}: no agent of {one.output.node} reports UUIDs"
        elif (one.output.node, one.entry.uuid) not in gpus.indices:
            yield f"the agent of {one.output.node} knows no such GPU: {one.name}"


def _label(output: OutputSeen, one: DeviceDigests, gpus: KnownGpus) -> str:
    """Return node and index of the device."""
    index = gpus.indices.get((output.node, one.uuid))
    return f"{output.node} " + (f"device {one.index} of {output.pod}" if index is None else f"GPU {index}")


def _all_named(findings: Sequence[_Finding]) -> str:
    """Return the first findings, and the subjects of the others."""
    first = "; ".join(words for _, words in findings[:MAX_NAMED])
    subjects = list(dict.fromkeys(subject for subject, _ in findings[MAX_NAMED:]))
    if not subjects:
        return first
    more = ", ".join(subjects[:MAX_OTHERS]) + (", and others" if len(subjects) > MAX_OTHERS else "")
    return f"{first}; {len(findings) - MAX_NAMED} more: {more}"


def _some(words: Sequence[str]) -> str:
    """Return the first words, and the number of the others."""
    more = f"; {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return "; ".join(words[:MAX_NAMED]) + more
