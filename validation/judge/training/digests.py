"""Judges the digests of exact computations that a job repeated on each GPU: all repeats and all GPUs must have one
digest.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

from validation.judge.check_verdict import Judgement
from validation.judge.events import Event, GpusSeen, OutputSeen
from validation.judge.repairs import Repair, needs
from validation.judge.verdict import Verdict

LEAST_REPEATS: Final = 3
COMPUTATIONS: Final = ("product", "half", "training")
"""The computations of `validation.workloads.digests`."""
MAX_NAMED: Final = 8
"""Maximum number of findings in a reason."""


class DeviceDigests(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The digests of one device: for each computation the number of repeats that had each digest.

    `index` counts the devices of the pod in the order of their PCI addresses. `processors` is the number of streaming
    multiprocessors, 0 if the library does not tell it. A `problem` is the reason for missing digests.
    """

    index: int
    uuid: str
    model: str
    processors: int
    library: str
    digests: dict[str, dict[str, Annotated[int, msgspec.Meta(ge=1)]]]
    problem: str = ""


class DigestsResult(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The document that a pod of the job prints: the digests of its devices, each computed `repeats` times."""

    api_version: Literal["muster.dev/v1alpha1"]
    kind: Literal["DigestsResult"]
    device_kind: Literal["gpu", "cpu"]
    repeats: int
    devices: list[DeviceDigests]


@dataclass(frozen=True, slots=True)
class _Device:
    """A device with its node, and its name in a finding."""

    name: str
    node: str
    kind: tuple[str, int, str]
    """Model, number of multiprocessors and library: devices of one kind must have equal digests."""
    digests: dict[str, dict[str, int]]


def parse_digests(line: str) -> DigestsResult | None:
    """Return the document of a pod; None if the line is no such document."""
    try:
        return msgspec.json.decode(line, type=DigestsResult)
    except msgspec.DecodeError:
        return None


def judge_digests(
    device: str, devices: int, outputs: Sequence[OutputSeen], during: Sequence[Event]
) -> Judgement:
    """Return the verdict on the outputs of all pods of a job that ended well.

    The job must have used this number of devices of the kind `device`.
    """
    read = [(output, parse_digests(output.line)) for output in outputs]
    documents = [(output, result) for output, result in read if result is not None]
    if len(documents) != len(read):
        pod = next(output.pod for output, result in read if result is None)
        return Judgement(Verdict.FAIL, f"{pod} printed no document of digests")
    other = next((output.pod for output, result in documents if result.device_kind != device), "")
    if other:
        return Judgement(Verdict.FAIL, f"{other} did not compute on a {device}")
    unread = [
        f"{output.node}: {result.devices[0].problem if result.devices else 'no device'}"
        for output, result in documents
        if not any(one.digests for one in result.devices)
    ]
    if unread:
        return Judgement(Verdict.INCONCLUSIVE, f"not read: {_some(unread)}")
    return _judge_devices(devices, documents, _indices(during))


def _judge_devices(
    devices: int,
    documents: Sequence[tuple[OutputSeen, DigestsResult]],
    indices: dict[tuple[str, str], int],
) -> Judgement:
    named = [
        (_name(output, one, indices), output, result, one)
        for output, result in documents
        for one in result.devices
    ]
    failed = [
        needs(f"{name} computed nothing: {one.problem or 'no digest'}", Repair.SUPPORT)
        for name, _, _, one in named
        if not one.digests
    ]
    computed = [
        _Device(name, output.node, (one.model, one.processors, one.library), one.digests)
        for name, output, _, one in named
        if one.digests
    ]
    wrong = [*failed, *_different(computed)]
    if wrong:
        return Judgement(Verdict.FAIL, _some(wrong))
    uuids = [one.uuid for *_, one in named if one.uuid]
    distinct = len(named) - (len(uuids) - len(set(uuids)))
    if distinct != devices:
        return Judgement(Verdict.FAIL, f"{distinct} devices computed, not {devices}")
    short = next((name for name, _, result, one in named if not _is_whole(result, one)), "")
    if short:
        return Judgement(
            Verdict.ERROR,
            f"less evidence than the check needs: {short} has not {LEAST_REPEATS} whole repeats",
        )
    alone = [group[0].name for group in _kinds(computed) if len(group) == 1]
    if alone:
        return Judgement(
            Verdict.INCONCLUSIVE,
            f"{alone[0]} is the only one of its kind: a constant defect would not be seen",
        )
    repeats = min(result.repeats for _, result in documents)
    libraries = ", ".join(sorted({one.kind[2] for one in computed}))
    return Judgement(Verdict.PASS, f"equal digests of {devices} devices in {repeats} repeats, by {libraries}")


def _different(devices: Sequence[_Device]) -> Iterator[str]:
    """Yield a finding for each device with several digests, or with another digest than the devices of its kind."""
    unsteady = set[str]()
    for one in devices:
        for computation, counts in sorted(one.digests.items()):
            if len(counts) > 1:
                unsteady.add(one.name)
                total = sum(counts.values())
                finding = f"{one.name}: {len(counts)} different results of {computation} in {total} repeats"
                yield needs(finding, Repair.REPLACE)
    for group in _kinds(devices):
        steady = [one for one in group if one.name not in unsteady]
        for computation in COMPUTATIONS:
            yield from _outvoted(computation, steady)


def _outvoted(computation: str, steady: Sequence[_Device]) -> Iterator[str]:
    """Yield a finding for each device with another digest than most. Without a majority, all of them are suspects."""
    digests = {one.name: next(iter(one.digests[computation])) for one in steady if computation in one.digests}
    votes = Counter(digests.values())
    if len(votes) < 2:
        return
    usual, number = votes.most_common(1)[0]
    has_majority = number * 2 > len(digests)
    for name, digest in digests.items():
        if not has_majority:
            finding = f"{name} is a suspect: {computation} is {digest[:8]}, of {len(votes)} results without a majority"
            yield needs(finding, Repair.REPLACE)
        elif digest != usual:
            finding = f"{name}: another result of {computation} than {number} devices of its kind"
            yield needs(finding, Repair.REPLACE)


def _kinds(devices: Sequence[_Device]) -> list[list[_Device]]:
    """Return the devices of each kind."""
    kinds: dict[tuple[str, int, str], list[_Device]] = defaultdict(list)
    for one in devices:
        kinds[one.kind].append(one)
    return list(kinds.values())


def _is_whole(result: DigestsResult, one: DeviceDigests) -> bool:
    """Return whether the device has a digest of each computation for each repeat, and enough repeats."""
    totals = {computation: sum(counts.values()) for computation, counts in one.digests.items()}
    return result.repeats >= LEAST_REPEATS and totals == dict.fromkeys(COMPUTATIONS, result.repeats)


def _indices(during: Sequence[Event]) -> dict[tuple[str, str], int]:
    """Return the index of each GPU that agents reported, by node and UUID."""
    seen = [event for event in during if isinstance(event, GpusSeen)]
    return {(event.node, gpu.uuid): gpu.index for event in seen for gpu in event.gpus if gpu.uuid}


def _name(output: OutputSeen, one: DeviceDigests, indices: dict[tuple[str, str], int]) -> str:
    """Return node, index and UUID of the device. The index is that of the agent, else that within the pod."""
    index = indices.get((output.node, one.uuid))
    place = f"device {one.index} of {output.pod}" if index is None else f"GPU {index}"
    return f"{output.node} {place} ({one.uuid or 'UUID not read'})"


def _some(findings: Sequence[str]) -> str:
    """Return the first findings, and the number of the others."""
    more = f"; {len(findings) - MAX_NAMED} more" if len(findings) > MAX_NAMED else ""
    return "; ".join(findings[:MAX_NAMED]) + more
