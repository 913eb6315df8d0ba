"""ResourceClaims in random small worlds: the rules for every decision, and for pending workloads in a world at rest.

Nothing is shared with the planner's ledger of claims: the holders of devices are summed up from the claims alone, and
possible devices are found by trying.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from orchestrator.devices.model import (
    Allocation,
    Claim,
    ClaimSpec,
    Constraint,
    DeviceClass,
    DeviceId,
    DeviceResult,
    DynamicResources,
    NodeChoice,
    ObservedClaim,
    RequestChoice,
)
from orchestrator.devices.quantity import parse_nano
from orchestrator.observe.extended_claims import IS_SHAREABLE
from orchestrator.planner import Planner, plan
from orchestrator.planner.model import Plan, Pod, PodState, Project, Request, Snapshot
from orchestrator.simulation.apply_plan import Departures
from tests.devices.builders import CLASS, DRIVER, device, exactly, first_available, resource_slice
from tests.planner import builders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NICS = "nic.example.com"
NIC_CLASS = DeviceClass("nic", (f"device.driver == '{NICS}'",))
MEMORY = "16Gi"
T = TypeVar("T")

TEAMS = ("team-a", "team-b")
STEPS = 30


@dataclass(frozen=True)
class Gpu:
    """A published GPU, as the brute force sees it."""

    node: str
    index: int
    model: str
    numa: int
    shareable: bool

    @property
    def id(self) -> DeviceId:
        return (DRIVER, self.node, f"gpu-{self.index}")


@dataclass(frozen=True)
class ClaimRequest:
    """The request of a claim, as the brute force reads it. `alternatives` are pairs of a count and a model."""

    alternatives: tuple[tuple[int, str], ...] = ((1, ""),)
    same_numa: bool = False
    memory_gib: int = 0
    admin: bool = False
    nics: int = 0

    def spec(self) -> ClaimSpec:
        capacity = (("memory", parse_nano(f"{self.memory_gib}Gi")),) if self.memory_gib else None
        requests: list[RequestChoice] = []
        if self.nics:
            requests.append(exactly("nic", count=self.nics, class_name="nic"))
        else:
            choices = [
                exactly(
                    f"gpu-{place}" if len(self.alternatives) > 1 else "gpu",
                    count=count,
                    selectors=(f'device.attributes["{DRIVER}"].model == "{model}"',) if model else (),
                    capacity=capacity,
                    admin_access=True if self.admin else None,
                )
                for place, (count, model) in enumerate(self.alternatives)
            ]
            requests.append(choices[0] if len(choices) == 1 else first_available("gpu", *choices))
        numa = (Constraint(f"{DRIVER}/numa"),) if self.same_numa else ()
        return ClaimSpec(tuple(requests), numa)

    @property
    def gpus(self) -> int:
        return 0 if self.admin or self.nics else self.alternatives[0][0]


class ClaimWorld:
    """A cluster whose claims behave as those of Kubernetes do, from decision to decision."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.claim_requests: dict[str, ClaimRequest] = {}
        self.templates: dict[str, list[str]] = {}
        self.generation = 0
        self.gpus: dict[DeviceId, Gpu] = {}
        slices = []
        nodes = []
        for number in range(rng.randint(1, 3)):
            name = f"node-{number}"
            kind = rng.choice(("published", "published", "plugin", "cpu"))
            count = rng.randint(1, 4) if kind != "cpu" else 0
            if kind == "published":
                shareable = rng.random() < 0.5
                listed = [Gpu(name, index, rng.choice("xy"), index // 2, shareable) for index in range(count)]
                self.gpus |= {gpu.id: gpu for gpu in listed}
                slices.append(
                    resource_slice(
                        *(
                            device(
                                gpu.id[2],
                                memory=MEMORY,
                                attributes={"model": gpu.model, "numa": gpu.numa},
                                shareable=shareable,
                            )
                            for gpu in listed
                        ),
                        pool=name,
                        nodes=NodeChoice(node_name=name),
                    )
                )
                nodes.append(
                    builders.node(
                        name,
                        count,
                        published_gpus=tuple(gpu.id for gpu in listed),
                        gpu_memory_mib=16 << 10,
                    )
                )
            else:
                nodes.append(builders.node(name, count))
            if rng.random() < 0.5:
                slices.append(
                    replace(
                        resource_slice(
                            device("nic-0"), pool=name, name=f"{name}-nics", nodes=NodeChoice(node_name=name)
                        ),
                        driver=NICS,
                    )
                )
        projects = [
            Project(name=team, quota_gpu_milli=rng.randint(0, 4) * 1000, over_quota_weight=1)
            for team in TEAMS
        ]
        snapshot = Snapshot(
            tuple(nodes), tuple(projects), (), dynamic=DynamicResources(tuple(slices), (CLASS, NIC_CLASS))
        )
        graces = [rng.randint(0, 2) for _ in range(3)]
        lates = rng.random() < 0.5
        self.departures = Departures(
            snapshot, lambda pod: graces[len(pod.id) % len(graces)], lambda _pod: lates
        )
        self.planner = Planner()
        self.decisions = self.evictions = 0

    @property
    def snapshot(self) -> Snapshot:
        return self.departures.snapshot

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        self.departures.snapshot = snapshot

    @property
    def claims(self) -> dict[str, ObservedClaim]:
        return {listed.claim.key: listed for listed in self.snapshot.dynamic.claims}

    def put_claims(self, claims: Iterable[ObservedClaim]) -> None:
        self.snapshot = replace(self.snapshot, dynamic=replace(self.snapshot.dynamic, claims=tuple(claims)))

    def make_claim(self, team: str, claim_request: ClaimRequest) -> str:
        self.generation += 1
        made = Claim(f"uid-{self.generation}", team, f"claim-{self.generation}", claim_request.spec())
        self.claim_requests[made.key] = claim_request
        self.put_claims([*self.snapshot.dynamic.claims, ObservedClaim(made)])
        return made.key

    def submit(self, team: str) -> None:
        rng = self.rng
        pods = rng.randint(1, 3)
        name = f"w{len(self.snapshot.workloads)}"
        made = builders.workload(
            name,
            team,
            0,
            age=len(self.snapshot.workloads) + 1,
            pods=pods,
            gang=rng.random() < 0.5,
            preemptible=rng.choice((True, True, False)),
        )
        kind = rng.choice(("own", "own", "template", "shared", "old", "two", "extended", "part", "part"))
        if kind in {"extended", "part"}:
            request, spec = Request(gpu_count=1), ClaimRequest().spec()
            if kind == "part":
                devices = rng.choice((1, 1, 2))
                spec = ClaimSpec((exactly("gpu-part", count=devices, selectors=(IS_SHAREABLE,)),))
                request = rng.choice(
                    (
                        Request(gpu_portion_milli=rng.choice((125, 333, 500, 600)), shared_devices=devices),
                        Request(gpu_memory_mib=rng.choice((1, 5)) << 10, shared_devices=devices),
                    )
                )
            made = replace(
                made,
                pods=tuple(
                    replace(
                        pod,
                        request=request,
                        extended_claim=Claim("", team, f"{pod.name}-extended", spec),
                    )
                    for pod in made.pods
                ),
            )
            self.snapshot = replace(self.snapshot, workloads=(*self.snapshot.workloads, made))
            return
        claim_request = self.draw_claim_request()
        # A project has one namespace, and a pod uses claims of its own namespace, so projects share no
        # claims.
        mine = {key for key, listed in self.claims.items() if listed.claim.namespace == team}
        old = sorted(key for key in mine & self.claim_requests.keys() if key not in self.of_templates())
        keys: list[tuple[str, ...]]
        if kind == "old" and old:
            keys = [(rng.choice(old),)] * pods
        elif kind == "shared":
            keys = [(self.make_claim(team, claim_request),)] * pods
        elif kind == "two":
            keys = [
                (self.make_claim(team, claim_request), self.make_claim(team, self.draw_claim_request()))
                for _ in range(pods)
            ]
        else:
            keys = [(self.make_claim(team, claim_request),) for _ in range(pods)]
        if kind == "template":
            for pod, own in zip(made.pods, keys, strict=True):
                self.templates[pod.name] = list(own)
        made = replace(
            made,
            pods=tuple(replace(pod, claims=own) for pod, own in zip(made.pods, keys, strict=True)),
        )
        self.snapshot = replace(self.snapshot, workloads=(*self.snapshot.workloads, made))

    def draw_claim_request(self) -> ClaimRequest:
        rng = self.rng
        kind = rng.choice(("count", "count", "model", "numa", "memory", "first", "admin", "nic"))
        count = rng.randint(1, 3)
        if kind == "model":
            return ClaimRequest(((count, rng.choice("xyz")),))
        if kind == "first":
            return ClaimRequest(((count, rng.choice("xyz")), (1, "")))
        return {
            "count": ClaimRequest(((count, ""),)),
            "numa": ClaimRequest(((count, ""),), same_numa=True),
            "memory": ClaimRequest(memory_gib=rng.choice((4, 8, 12))),
            "admin": ClaimRequest(admin=True),
            "nic": ClaimRequest(nics=1),
        }[kind]

    def allocate_for_others(self) -> None:
        """Let another scheduler allocate free GPUs to a claim of a foreign pod."""
        held = holders(self.snapshot.dynamic.claims)
        used = {(pod.node, index) for pod in self.pods() if pod.node for index in pod.devices}
        free = [gpu for gpu in self.gpus.values() if gpu.id not in held and (gpu.node, gpu.index) not in used]
        if not free:
            return
        gpu = self.rng.choice(free)
        self.generation += 1
        claim = Claim(f"uid-{self.generation}", "team", f"other-{self.generation}", ClaimRequest().spec())
        share = "other" if gpu.shareable else ""
        amounts = (("memory", parse_nano(MEMORY)),) if gpu.shareable else ()
        allocation = Allocation((DeviceResult("gpu", gpu.id, share_id=share, consumed=amounts),))
        self.put_claims(
            [*self.snapshot.dynamic.claims, ObservedClaim(claim, allocation, (f"foreign-{self.generation}",))]
        )
        self.snapshot = replace(
            self.snapshot,
            nodes=tuple(
                replace(
                    node,
                    foreign_devices=tuple(sorted({*node.foreign_devices, gpu.index})),
                    foreign=replace(node.foreign, gpu_count=node.foreign.gpu_count + 1),
                )
                if node.name == gpu.node
                else node
                for node in self.snapshot.nodes
            ),
        )

    def of_templates(self) -> set[str]:
        return {key for keys in self.templates.values() for key in keys}

    def pods(self) -> list[Pod]:
        return [pod for workload in self.snapshot.workloads for pod in workload.pods]

    def read(self) -> None:
        """Renew the claims of replaced pods, and read the pods as the operator does: each claim counts once."""
        for pod in self.pods():
            base = pod.name
            if base in self.templates and pod.state is PodState.PENDING and "+" in pod.id:
                known = [key for key in pod.claims if key.endswith(f"-of-{pod.id.replace('+', '-')}")]
                if known:
                    continue
                fresh = []
                for key in pod.claims:
                    self.generation += 1
                    made = Claim(
                        f"uid-{self.generation}",
                        key.partition("/")[0],
                        f"claim-{self.generation}-of-{pod.id.replace('+', '-')}",
                        self.claim_requests[key].spec(),
                    )
                    self.claim_requests[made.key] = self.claim_requests[key]
                    self.templates[base].append(made.key)
                    self.put_claims([*self.snapshot.dynamic.claims, ObservedClaim(made)])
                    fresh.append(made.key)
                self.change(pod.id, claims=tuple(fresh))
        counted = self.counted_users()
        claims = self.claims
        workloads = tuple(
            replace(workload, pods=tuple(self.as_read(pod, counted, claims) for pod in workload.pods))
            for workload in self.snapshot.workloads
        )
        if workloads != self.snapshot.workloads:
            self.snapshot = replace(self.snapshot, workloads=workloads)

    def change(self, pod_id: str, **changes: object) -> None:
        self.snapshot = replace(
            self.snapshot,
            workloads=tuple(
                replace(
                    workload,
                    pods=tuple(
                        replace(pod, **changes) if pod.id == pod_id else pod  # type: ignore[arg-type]
                        for pod in workload.pods
                    ),
                )
                for workload in self.snapshot.workloads
            ),
        )

    def counted_users(self) -> set[tuple[str, str]]:
        """Return pairs of a claim and a pod with which the claim counts.

        A claim counts with its first running pod. Without running pods, it counts with the first pending pod of each
        workload, and with its first terminating pod.
        """
        running: dict[str, list[tuple[int, str]]] = defaultdict(list)
        leaving: dict[str, list[tuple[int, str]]] = defaultdict(list)
        waiting: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        for workload in self.snapshot.workloads:
            for pod in workload.pods:
                order = (workload.created_at_us, pod.id)
                for key in pod.claims:
                    if pod.state is PodState.RELEASING:
                        leaving[key].append(order)
                    elif pod.node is not None:
                        running[key].append(order)
                    else:
                        waiting[key, workload.id].append(order)
        counted = {(key, min(users)[1]) for key, users in running.items()}
        counted |= {(key, min(users)[1]) for (key, _), users in waiting.items() if key not in running}
        return counted | {(key, min(users)[1]) for key, users in leaving.items() if key not in running}

    def given_up(self) -> set[str]:
        """Return the claims whose running pods are all terminating."""
        users = [(key, pod) for pod in self.pods() if pod.node for key in pod.claims]
        staying = {key for key, pod in users if pod.state is not PodState.RELEASING}
        return {key for key, _ in users} - staying

    def as_read(self, pod: Pod, users: set[tuple[str, str]], claims: dict[str, ObservedClaim]) -> Pod:
        if not pod.claims:
            return pod
        if pod.extended_claim is not None and pod.request.is_shared:
            return pod  # such a pod counts with its own request
        held = {
            key: claims[key].allocation
            for key in pod.claims
            if pod.node is not None or key not in self.given_up()
        }
        counted = [key for key in pod.claims if (key, pod.id) in users]
        missing = tuple(claims[key].claim.spec for key in pod.claims if held.get(key) is None)
        whole, parts, devices = 0, list[int](), set[int]()
        for key in counted:
            allocation = held.get(key)
            if allocation is None:
                requested_whole, requested_parts = self.requested(self.claim_requests[key])
                whole += requested_whole
                parts += requested_parts
                continue
            for result in allocation.results:
                if result.device_id not in self.gpus or result.admin_access:
                    continue
                nano = dict(result.consumed).get("memory", 0)
                is_part = result.share_id and nano < parse_nano(MEMORY)
                parts += [nano // parse_nano("1Mi")] if is_part else []
                whole += not is_part
                devices.add(self.gpus[result.device_id].index)
        if parts and not whole and len(set(parts)) == 1:
            request = Request(gpu_memory_mib=parts[0], shared_devices=len(parts), claim_specs=missing)
        else:
            request = Request(gpu_count=whole + len(parts), claim_specs=missing)
        read = replace(pod, request=request, devices=tuple(sorted(devices)) if pod.node else ())
        return pod if read == pod else read

    def requested(self, claim_request: ClaimRequest) -> tuple[int, list[int]]:
        """Return the number of whole GPUs, and the memory of each fraction in MiB."""
        if claim_request.memory_gib and any(gpu.shareable for gpu in self.gpus.values()):
            return 0, [claim_request.memory_gib << 10]
        most = max(Counter(gpu.node for gpu in self.gpus.values()).values(), default=0)
        return min(claim_request.gpus, most), []

    def step(self) -> tuple[Plan, bool]:
        self.read()
        self.decisions += 1
        before = self.snapshot
        decision = plan(before)
        assert self.planner.plan(before) == decision, "books that were kept decide differently"
        mixed = replace(
            before,
            nodes=tuple(self.mixed(before.nodes)),
            workloads=tuple(self.mixed(before.workloads)),
            dynamic=replace(before.dynamic, claims=tuple(self.mixed(before.dynamic.claims))),
        )
        assert repr(sorted(plan(mixed).bindings, key=lambda b: b.pod)) == repr(
            sorted(decision.bindings, key=lambda b: b.pod)
        ), "the order of the input matters"
        self.check_bindings(before, decision)
        self.evictions += len(decision.evictions)
        goes_on = self.departures.carry_out(decision)
        self.check_devices()
        return decision, goes_on

    def mixed(self, items: Iterable[T]) -> list[T]:
        listed = list(items)
        self.rng.shuffle(listed)
        return listed

    def check_bindings(self, before: Snapshot, decision: Plan) -> None:
        claims = {listed.claim.key: listed for listed in before.dynamic.claims}
        pods = {pod.id: pod for workload in before.workloads for pod in workload.pods}
        bound = {binding.pod for binding in decision.bindings}
        for key in decision.deallocations:
            users = [pod for pod in pods.values() if key in pod.claims and pod.node]
            assert not users, f"{key} is taken from {users}"
            assert all(user in pods for user in claims[key].reserved_for), f"{key} is taken from others"
        given: dict[str, Allocation] = {}
        for binding in decision.bindings:
            pod = pods[binding.pod]
            granted = {grant.claim.key: grant.allocation for grant in binding.grants}
            for key in pod.claims:
                held = claims[key].allocation
                if held is None:
                    assert key in granted, f"{pod.id} is bound without the devices of {key}"
                    assert given.setdefault(key, granted[key]) == granted[key], f"{key} is allocated twice"
                else:
                    assert key not in granted, f"{key} holds devices already and is given others"
                    assert key not in decision.deallocations
                allocation = held or granted[key]
                for term in allocation.nodes.fields if allocation.nodes else ():
                    assert term.values == (binding.node,), f"{pod.id} is bound away from its devices"
            node = next(node for node in before.nodes if node.name == binding.node)
            if pod.extended_claim is not None and node.published_gpus:
                assert sum(grant.extended for grant in binding.grants) == 1
        assert len(bound) == len(decision.bindings)

    def check_devices(self) -> None:
        """Check that no device has two owners or more allocated memory than it has, and that pods have their claims'
        devices.
        """
        for device_id, amounts in holders(self.snapshot.dynamic.claims).items():
            if None in amounts:
                assert len(amounts) == 1, f"{device_id} has {len(amounts)} owners"
            else:
                assert sum(filter(None, amounts)) <= parse_nano(MEMORY), f"{device_id} is overcommitted"
        claims = self.claims
        self.check_parts()
        for pod in self.pods():
            if pod.node and pod.claims:
                for key in pod.claims:
                    assert claims[key].allocation is not None, f"{pod.id} runs without {key}"
                    assert pod.id in claims[key].reserved_for

    def check_parts(self) -> None:
        """Check that the fractions on a GPU are at most the whole, and are on the GPUs with which the pods count."""
        nodes = {node.name: node for node in self.snapshot.nodes}
        used: Counter[tuple[str, int]] = Counter()
        shared = set[str]()
        for pod in self.pods():
            if pod.node is None or not pod.request.is_shared or not nodes[pod.node].published_gpus:
                continue
            if not shared.isdisjoint(pod.claims):
                continue  # two workloads that start with one claim both count it until they are read again
            shared.update(pod.claims)
            for index in pod.devices:
                used[pod.node, index] += pod.request.part_mib(nodes[pod.node].gpu_memory_mib)
            if pod.extended_claim is not None:
                allocation = self.claims[pod.claims[0]].allocation
                assert allocation is not None
                held = sorted(self.gpus[result.device_id].index for result in allocation.results)
                assert held == sorted(pod.devices)
        assert all(memory_mib <= nodes[node].gpu_memory_mib for (node, _), memory_mib in used.items()), used

    def run(self) -> Plan:
        for _ in range(STEPS):
            decision, goes_on = self.step()
            if not goes_on and self.departures.is_quiet:
                return decision
        raise AssertionError("it does not come to rest")

    def check_nobody_waits_for_nothing(self, last: Plan) -> None:
        """Check that a workload of one pod with one claim, within its project's quota, runs if a node has free devices
        for it.
        """
        self.read()
        if last.nominations:
            return
        claims = self.claims
        held = holders(self.snapshot.dynamic.claims)
        for pod in self.pods():
            if pod.node is not None and pod.request.gpu_count:
                for index in pod.devices:  # a fraction beside whole GPUs counts as a whole GPU
                    held[(DRIVER, pod.node, f"gpu-{index}")].append(None)
        used: Counter[str] = Counter()
        for workload in self.snapshot.workloads:
            used[workload.project] += sum(
                1000 * (pod.request.gpu_count or pod.request.is_shared * pod.request.shared_devices)
                for pod in workload.pods
                if pod.node is not None
            )
        quotas = {project.name: project.quota_gpu_milli or 0 for project in self.snapshot.projects}
        for workload in self.snapshot.workloads:
            if len(workload.pods) != 1 or workload.pods[0].state is not PodState.PENDING:
                continue
            (pod,) = workload.pods
            keys = [key for key in pod.claims if claims[key].allocation is None]
            if len(keys) != 1 or len(pod.claims) != 1:
                continue
            claim_request = self.claim_requests[keys[0]]
            if claim_request.nics or claim_request.admin:
                continue
            need = 1000 * max(1, pod.request.gpu_count)
            if used[workload.project] + need > quotas[workload.project]:
                continue
            free = [
                chosen
                for node in self.snapshot.nodes
                for chosen in self.would_do(claim_request, node.name, held)
            ]
            assert not free, f"{workload.id} waits beside {free}: {last.pending.get(workload.id)}"

    def would_do(
        self, claim_request: ClaimRequest, node: str, held: dict[DeviceId, list[int | None]]
    ) -> Iterator[tuple[Gpu, ...]]:
        """Yield the sets of free GPUs of the node that satisfy the first alternative."""
        count, model = claim_request.alternatives[0]
        requested = parse_nano(f"{claim_request.memory_gib}Gi" if claim_request.memory_gib else MEMORY)
        usable = [
            gpu
            for gpu in self.gpus.values()
            if gpu.node == node
            and model in {"", gpu.model}
            and self.has_free(held.get(gpu.id, []), gpu, requested)
        ]
        for chosen in combinations(usable, count):
            if not claim_request.same_numa or len({gpu.numa for gpu in chosen}) == 1:
                yield chosen

    @staticmethod
    def has_free(amounts: list[int | None], gpu: Gpu, requested: int) -> bool:
        if not gpu.shareable:
            return not amounts
        if None in amounts:
            return False
        # The planner rounds each fraction up to thousandths of the GPU: 4 x 1 GiB and 12 GiB are more than 16
        # GiB.
        whole = parse_nano(MEMORY)
        parts_milli = [-(-1000 * amount // whole) for amount in (*filter(None, amounts), requested)]
        return sum(parts_milli) <= 1000


def holders(claims: Iterable[ObservedClaim]) -> dict[DeviceId, list[int | None]]:
    """Return by device the memory of each allocated fraction; None for the whole device."""
    held: dict[DeviceId, list[int | None]] = defaultdict(list)
    for listed in claims:
        for result in listed.allocation.results if listed.allocation else ():
            if not result.admin_access:
                amount = dict(result.consumed).get("memory", parse_nano(MEMORY))
                held[result.device_id].append(amount if result.share_id else None)
    return held


def walk(seed: int) -> tuple[int, int]:
    """Build the world with this number, and decide until it is at rest. Returns the numbers of decisions and evictions.

    Raises AssertionError if a decision breaks a rule, or the world does not come to rest.
    """
    rng = random.Random(seed)  # noqa: S311 - a world for each number
    world = ClaimWorld(rng)
    for team in (("team-a",), ("team-b",), TEAMS):
        for _ in range(rng.randint(1, 6)):
            world.submit(rng.choice(team))
        if rng.random() < 0.3:
            world.allocate_for_others()
        for _ in range(rng.randint(0, 3)):
            world.step()
        running = sorted(pod.id for pod in world.pods() if pod.state is PodState.ALLOCATED)
        if running and rng.random() < 0.2:
            world.departures.lose([rng.choice(running)])
    last = world.run()
    world.check_nobody_waits_for_nothing(last)
    return world.decisions, world.evictions
