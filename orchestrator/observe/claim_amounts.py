"""The number or memory of GPUs in requests and allocations of ResourceClaims, as quotas count them. Pure.

A DeviceClass is a class of GPUs if its selectors accept a published GPU. If a request has alternatives, the first
alternative with GPUs counts. An amount of memory of a shared GPU counts as a fraction. If the pod also has whole GPUs,
each fraction counts as a whole GPU.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.devices.model import (
    Allocation,
    Amounts,
    ClaimSpec,
    Device,
    DeviceClass,
    Features,
)
from orchestrator.devices.model import Request as DeviceRequest
from orchestrator.devices.quantity import MIB_NANO
from orchestrator.names import GPU_DRIVER
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.planner.model import Request

MAX_COST_NS: Final = 2_000_000_000
"""Maximum cost of the selectors of all classes, about 20,000 evaluations. Classes whose selectors would exceed this
maximum do not count as GPUs.
"""

_MEMORY: Final = ("memory", f"{GPU_DRIVER}/memory")


@dataclass(frozen=True, slots=True)
class GpuAmounts:
    """The number of whole GPUs, and the memory of each fraction. `devices` are the indices of allocated GPUs."""

    whole: int = 0
    parts_mib: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()

    def plus(self, other: "GpuAmounts") -> "GpuAmounts":
        """Return the sum of both."""
        return GpuAmounts(
            self.whole + other.whole,
            self.parts_mib + other.parts_mib,
            tuple(sorted({*self.devices, *other.devices})),
        )

    def added_to(self, request: Request, specs: tuple[ClaimSpec, ...]) -> Request:
        """Return the request with these GPUs added, and with `specs`, the specifications of claims without devices."""
        whole = self.whole + request.gpu_count
        if self.parts_mib and not whole and not request.is_shared and len(set(self.parts_mib)) == 1:
            return replace(
                request,
                gpu_memory_mib=self.parts_mib[0],
                shared_devices=len(self.parts_mib),
                claim_specs=specs,
            )
        return replace(request, gpu_count=whole + len(self.parts_mib), claim_specs=specs)


class GpuClasses:
    """Finds the DeviceClasses of GPUs. `samples` are published GPUs, `most` the number of GPUs of the largest node."""

    def __init__(self, classes: Mapping[str, DeviceClass], samples: Collection[Device], most: int) -> None:
        self._classes = classes
        self._samples = samples
        self._most = most
        self._accepted: dict[str, Device | None] = {}
        self._left_ns = MAX_COST_NS

    def amounts(self, spec: ClaimSpec) -> GpuAmounts:
        """Return the GPUs that a claim with this specification requests."""
        total = GpuAmounts()
        for choice in spec.requests:
            requested = (self._amounts(request) for request in choice.alternatives)
            total = total.plus(
                next((amounts for amounts in requested if amounts != GpuAmounts()), GpuAmounts())
            )
        return total

    def _amounts(self, request: DeviceRequest) -> GpuAmounts:
        sample = self._sample(request.class_name)
        if sample is None or request.is_admin:
            return GpuAmounts()
        count = self._most if request.mode == "All" else min(request.count, self._most)
        part_mib = _memory_mib(request.capacity)
        if part_mib and sample.shareable:
            return GpuAmounts(parts_mib=(part_mib,) * count)
        return GpuAmounts(whole=count)

    def _sample(self, name: str) -> Device | None:
        """Return a GPU that the class accepts, or None."""
        if name not in self._accepted:
            self._accepted[name] = self._find_sample(name)
        return self._accepted[name]

    def _find_sample(self, name: str) -> Device | None:
        from orchestrator.devices.selectors import (  # noqa: PLC0415 - most clusters need no CEL
            DeviceView,
            SelectorFailed,
            Selectors,
        )

        listed = self._classes.get(name)
        if listed is None or not self._samples:
            return None
        selectors = Selectors(Features())
        try:
            programs = [selectors.compile(expression) for expression in listed.selectors]
        except SelectorFailed:
            return None
        cost_ns = sum(program.cost.max_ns for program in programs)
        for sample in self._samples:
            view = DeviceView(GPU_DRIVER, sample)
            self._left_ns -= cost_ns
            if self._left_ns < 0:
                return None
            try:
                if all(selectors.evaluate(program, view) for program in programs):
                    return sample
            except SelectorFailed:
                continue
        return None


def claimed_gpus(specs: Iterable[ClaimSpec], classes: GpuClasses) -> GpuAmounts:
    """Return the GPUs that claims with these specifications request together."""
    total = GpuAmounts()
    for spec in specs:
        total = total.plus(classes.amounts(spec))
    return total


def held_gpus(allocations: Iterable[Allocation], gpus: PublishedGpus | None) -> GpuAmounts:
    """Return the amounts of these GPUs in the allocations."""
    indices = {} if gpus is None else {device_id: index for index, device_id in enumerate(gpus.ids)}
    memory_mib = 0 if gpus is None else gpus.memory_mib
    whole: list[int] = []
    parts: list[tuple[int, int]] = []
    for allocation in allocations:
        for result in allocation.results:
            index = indices.get(result.device_id)
            if index is None or result.admin_access:
                continue
            part_mib = _memory_mib(result.consumed) if result.share_id else 0
            if part_mib and part_mib < memory_mib:
                parts.append((index, part_mib))
            else:
                whole.append(index)
    return GpuAmounts(
        len(whole), tuple(part for _, part in parts), tuple(sorted({*whole, *(index for index, _ in parts)}))
    )


def _memory_mib(amounts: Amounts | None) -> int:
    """Return the memory in MiB, rounded up; 0 if it is not among the amounts."""
    listed = dict(amounts or ())
    nano = next((listed[name] for name in _MEMORY if name in listed), 0)
    return -(-nano // MIB_NANO)
