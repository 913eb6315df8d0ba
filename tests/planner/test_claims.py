"""ResourceClaims in decisions: quotas, gangs, reclaim, migration and unused allocations, on nodes that publish GPUs."""

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.devices.model import (
    MAX_USERS,
    Claim,
    ClaimSpec,
    DeviceTaint,
    DynamicResources,
    NodeChoice,
    ObservedClaim,
    RequestChoice,
)
from orchestrator.devices.quantity import parse_nano
from orchestrator.observe.extended_claims import IS_SHAREABLE
from orchestrator.planner import Planner, plan
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.cycle import ACTION_NAMES
from orchestrator.planner.model import (
    Node,
    Plan,
    PodState,
    Project,
    Request,
    Snapshot,
    Waiting,
    Workload,
)
from orchestrator.planner.session import Session
from orchestrator.simulation.apply_plan import after_decision
from tests.devices.builders import (
    CLASS,
    DRIVER,
    counters,
    device,
    exactly,
    resource_slice,
)
from tests.planner import builders


def published(node: str, gpus: int = 8) -> Node:
    return builders.node(
        node, gpus, published_gpus=tuple((DRIVER, node, f"gpu-{index}") for index in range(gpus))
    )


def claimed(name: str, *requests: RequestChoice) -> Claim:
    return Claim(f"uid-{name}", "team", name, ClaimSpec(requests or (exactly(),)))


def job(name: str, project: str, *claims: Claim, pods: int = 1, age: int = 0, **changes: object) -> Workload:
    """Return a workload whose pods have one claim each, or whose only pod has all of these claims."""
    base = builders.workload(name, project, 0, age=age, pods=pods, **changes)  # type: ignore[arg-type]
    groups = [claims] if pods == 1 else [(claim,) for claim in claims]
    return replace(
        base,
        pods=tuple(
            replace(pod, request=_request(group), claims=tuple(claim.key for claim in group))
            for pod, group in zip(base.pods, groups, strict=True)
        ),
    )


def _request(claims: Iterable[Claim]) -> Request:
    specs = tuple(claim.spec for claim in claims)
    count = sum(choice.alternatives[0].count for spec in specs for choice in spec.requests)
    return Request(gpu_count=count, claim_specs=specs)


class Claims:
    """A cluster of nodes that publish their GPUs, from decision to decision."""

    def __init__(self, nodes: Iterable[Node], projects: Iterable[Project]) -> None:
        nodes = tuple(nodes)
        slices = tuple(
            resource_slice(
                *(device(f"gpu-{index}", attributes={"index": index}) for index in range(node.gpu_count)),
                pool=node.name,
                nodes=NodeChoice(node_name=node.name),
            )
            for node in nodes
            if node.published_gpus
        )
        self.snapshot = Snapshot(nodes, tuple(projects), (), dynamic=DynamicResources(slices, (CLASS,)))
        self._planner = Planner()

    def submit(self, workload: Workload, *claims: Claim) -> None:
        dynamic = self.snapshot.dynamic
        listed = (*dynamic.claims, *(ObservedClaim(claim) for claim in claims))
        self.snapshot = replace(
            self.snapshot,
            workloads=(*self.snapshot.workloads, workload),
            dynamic=replace(dynamic, claims=listed),
        )

    def step(self) -> Plan:
        decision = plan(self.snapshot)
        assert self._planner.plan(self.snapshot) == decision, "books that were kept decide differently"
        self.snapshot = after_decision(self.snapshot, decision)
        self.check()
        return decision

    def settle(self) -> Plan:
        for _ in range(20):
            decision = self.step()
            if not decision.bindings and not decision.evictions:
                return decision
        raise AssertionError("the plan never came to rest")

    def check(self) -> None:
        """Check that no device has two owners, and that each pod has the devices of its claims."""
        owners: dict[object, str] = {}
        held = {listed.claim.key: listed.allocation for listed in self.snapshot.dynamic.claims}
        for key, allocation in held.items():
            for result in allocation.results if allocation else ():
                assert result.share_id or owners.setdefault(result.device_id, key) == key
        for workload in self.snapshot.workloads:
            for pod in workload.pods:
                if pod.state is PodState.ALLOCATED and pod.claims and pod.request.gpu_count:
                    devices = {
                        int(result.device_id[2].removeprefix("gpu-"))
                        for key in pod.claims
                        if (allocation := held[key]) is not None
                        for result in allocation.results
                    }
                    assert devices == set(pod.devices)

    def running(self) -> set[str]:
        return {
            workload.name
            for workload in self.snapshot.workloads
            if all(pod.state is PodState.ALLOCATED for pod in workload.pods)
        }


def test_a_claim_is_allocated_with_the_binding_of_its_pod() -> None:
    cluster = Claims([published("node-1")], [builders.project("a", 8000)])
    claim = claimed("one")
    cluster.submit(job("one", "a", claim), claim)
    (binding,) = cluster.step().bindings
    (grant,) = binding.grants
    assert grant.claim == claim
    assert [result.device_id for result in grant.allocation.results] == [(DRIVER, "node-1", "gpu-0")]
    assert binding.devices == (0,)
    assert not grant.extended


def test_two_claims_never_have_one_device_and_the_second_is_pending() -> None:
    cluster = Claims([published("node-1", 2)], [builders.project("a", 2000)])
    for age, name in enumerate(("one", "two", "three")):
        cluster.submit(job(name, "a", claimed(name), age=age), claimed(name))
    last = cluster.settle()
    assert cluster.running() == {"one", "two"}
    assert set(last.pending) == {"three"}


def test_a_selector_decides_on_the_device() -> None:
    cluster = Claims([published("node-1")], [builders.project("a", 8000)])
    claim = claimed("one", exactly(selectors=(f'device.attributes["{DRIVER}"].index == 5',)))
    cluster.submit(job("one", "a", claim), claim)
    assert cluster.step().bindings[0].devices == (5,)


def test_a_claim_that_no_device_satisfies_is_reported() -> None:
    cluster = Claims([published("node-1")], [builders.project("a", 8000)])
    claim = claimed("one", exactly(selectors=(f'device.attributes["{DRIVER}"].index == 50',)))
    cluster.submit(job("one", "a", claim), claim)
    reason = cluster.step().pending["one"]
    assert reason.code is Waiting.FRAGMENTED
    assert "no node that matches has all devices free that its resource claim asks for" in reason.message


def test_a_class_that_is_not_there_is_said() -> None:
    cluster = Claims([published("node-1")], [builders.project("a", 8000)])
    claim = claimed("one", exactly(class_name="none"))
    cluster.submit(job("one", "a", claim), claim)
    reason = cluster.step().pending["one"]
    assert reason.code is Waiting.CLAIMS
    assert "none" in reason.message


def test_claims_count_against_the_quota_and_are_reclaimed() -> None:
    cluster = Claims([published("node-1", 4)], [builders.project("a", 2000), builders.project("b", 2000)])
    for number in range(4):
        claim = claimed(f"a{number}")
        cluster.submit(job(claim.name, "a", claim, age=number), claim)
    cluster.settle()
    assert len(cluster.running()) == 4
    owed = claimed("b", exactly(count=2))
    cluster.submit(job("b", "b", owed, age=9), owed)
    decision = cluster.step()
    assert {eviction.workload for eviction in decision.evictions} == {"a2", "a3"}
    cluster.settle()
    assert "b" in cluster.running()
    assert len(cluster.running()) == 3


def test_a_gang_gets_the_claims_of_all_its_pods_or_none() -> None:
    cluster = Claims([published("node-1", 2), published("node-2", 1)], [builders.project("a", 8000)])
    claims = [claimed(f"g{number}") for number in range(4)]
    cluster.submit(job("gang", "a", *claims, pods=4, gang=True), *claims)
    assert not cluster.step().bindings
    fewer = claims[:3]
    cluster.snapshot = replace(cluster.snapshot, workloads=())
    cluster.submit(job("three", "a", *fewer, pods=3, gang=True))
    assert len(cluster.step().bindings) == 3


def test_pods_that_share_a_claim_run_on_one_node_and_it_counts_once() -> None:
    cluster = Claims([published("node-1", 1), published("node-2", 1)], [builders.project("a", 2000)])
    shared = claimed("shared")
    both = job("both", "a", shared, shared, pods=2, gang=True)
    first, second = both.pods
    both = replace(both, pods=(first, replace(second, request=Request())))
    cluster.submit(both, shared)
    bindings = cluster.step().bindings
    assert len({binding.node for binding in bindings}) == 1
    assert len(bindings) == 2
    (listed,) = cluster.snapshot.dynamic.claims
    assert len(listed.reserved_for) == 2


def test_whole_gpus_are_claimed_on_a_node_that_publishes_them() -> None:
    cluster = Claims([published("node-1", 2)], [builders.project("a", 2000)])
    plain = builders.workload("plain", "a", 2000)
    (pod,) = plain.pods
    extended = claimed("extended", exactly("container-0-request-0", count=2))
    cluster.submit(replace(plain, pods=(replace(pod, extended_claim=extended),)))
    (binding,) = cluster.step().bindings
    assert [grant.extended for grant in binding.grants] == [True]
    assert binding.devices == (0, 1)


def test_without_a_class_for_them_whole_gpus_are_not_given_on_such_a_node() -> None:
    cluster = Claims([published("node-1", 2)], [builders.project("a", 2000)])
    cluster.submit(builders.workload("plain", "a", 1000))
    assert not cluster.step().bindings


def test_a_node_without_slices_gives_no_claim_anything() -> None:
    cluster = Claims([builders.node("node-1")], [builders.project("a", 2000)])
    claim = claimed("one")
    cluster.submit(job("one", "a", claim), claim)
    assert not cluster.step().bindings


def test_devices_allocated_by_others_are_given_to_no_pod() -> None:
    cluster = Claims([published("node-1", 1)], [builders.project("a", 2000)])
    theirs = claimed("theirs")
    cluster.submit(job("theirs", "a", theirs), theirs)
    cluster.step()
    foreign = cluster.snapshot.dynamic.claims
    cluster.snapshot = replace(
        cluster.snapshot,
        nodes=(replace(cluster.snapshot.nodes[0], foreign_devices=(0,), foreign=Request(gpu_count=1)),),
        workloads=(),
    )
    mine = claimed("mine")
    cluster.submit(job("mine", "a", mine), mine)
    assert not cluster.step().bindings
    assert cluster.snapshot.dynamic.claims[: len(foreign)] == foreign


def test_devices_that_are_held_for_a_pod_that_cannot_have_them_are_given_back() -> None:
    cluster = Claims([published("node-1", 1), published("node-2", 1)], [builders.project("a", 2000)])
    claim = claimed("one")
    cluster.submit(job("one", "a", claim), claim)
    allocation = plan(cluster.snapshot).bindings[0].grants[0].allocation
    held = ObservedClaim(claim, allocation, ("one-0",))
    node = replace(cluster.snapshot.nodes[0], schedulable=False)
    cluster.snapshot = replace(
        cluster.snapshot,
        nodes=(node, cluster.snapshot.nodes[1]),
        dynamic=replace(cluster.snapshot.dynamic, claims=(held,)),
    )
    assert cluster.step().deallocations == ("team/one",)
    assert cluster.step().bindings[0].node == "node-2"


def test_a_claim_that_holds_devices_already_is_bound_where_they_are() -> None:
    cluster = Claims([published("node-1", 1), published("node-2", 1)], [builders.project("a", 2000)])
    claim = claimed("one")
    cluster.submit(job("one", "a", claim), claim)
    allocation = plan(cluster.snapshot).bindings[0].grants[0].allocation
    held = ObservedClaim(claim, allocation, ("one-0",))
    cluster.snapshot = replace(cluster.snapshot, dynamic=replace(cluster.snapshot.dynamic, claims=(held,)))
    (binding,) = cluster.step().bindings
    assert binding.node == "node-1"
    assert binding.devices == (0,)
    assert binding.grants == ()


def test_muster_gives_way_where_another_scheduler_gave_the_same_device_away() -> None:
    cluster = Claims([published("node-1", 2)], [builders.project("a", 2000)])
    mine = claimed("mine")
    cluster.submit(job("mine", "a", mine), mine)
    cluster.step()
    (held,) = cluster.snapshot.dynamic.claims
    theirs = ObservedClaim(claimed("theirs"), held.allocation, ("somebody",))
    cluster.snapshot = replace(
        cluster.snapshot, dynamic=replace(cluster.snapshot.dynamic, claims=(held, theirs))
    )
    decision = plan(cluster.snapshot)
    assert [(eviction.pod, eviction.rule) for eviction in decision.evictions] == [("mine-0", "double-claim")]
    cluster.step()
    (binding,) = cluster.step().bindings
    assert [result.device_id[2] for result in binding.grants[0].allocation.results] == ["gpu-1"]


def test_a_claim_gets_no_other_devices_before_its_last_user_has_ended() -> None:
    cluster = Claims([published("node-1", 2)], [builders.project("a", 2000)])
    claim = claimed("one")
    cluster.submit(job("one", "a", claim), claim)
    cluster.step()
    (running,) = cluster.snapshot.workloads
    (pod,) = running.pods
    leaving = replace(running, pods=(replace(pod, state=PodState.RELEASING),))
    follower = replace(
        job("next", "a", claim, age=1), pods=(replace(pod, id="next-0", state=PodState.PENDING),)
    )
    waiting = replace(follower.pods[0], node=None, devices=())
    follower = replace(follower, pods=(waiting,))
    cluster.snapshot = replace(cluster.snapshot, workloads=(leaving, follower))
    assert not cluster.step().bindings


def test_a_claim_takes_no_more_pods_than_it_can_be_reserved_for() -> None:
    cluster = Claims([published("node-1", 1)], [builders.project("a", 1000)])
    claim = claimed("one")
    cluster.submit(job("one", "a", claim), claim)
    cluster.step()
    (listed,) = cluster.snapshot.dynamic.claims
    full = replace(listed, reserved_for=("one-0", *(f"other-{number}" for number in range(MAX_USERS - 1))))
    cluster.snapshot = replace(cluster.snapshot, dynamic=replace(cluster.snapshot.dynamic, claims=(full,)))
    more = job("more", "a", claim, age=1)
    cluster.submit(replace(more, pods=(replace(more.pods[0], request=Request()),)))
    assert not cluster.step().bindings


def test_a_nominated_pod_gets_the_gpu_that_was_kept_for_it_where_another_would_do_as_well() -> None:
    """Another workload can be nominated to the other GPU, and would then be migrated again, and so on."""
    cluster = Claims([published("node-1", 2)], [builders.project("a", 2000)])
    claim = claimed("one")
    waiting = job("one", "a", claim)
    nominated = replace(waiting.pods[0], nominated_node="node-1", nominated_devices=(1,))
    cluster.submit(replace(waiting, pods=(nominated,)), claim)
    (binding,) = cluster.step().bindings
    assert binding.devices == (1,)


def test_a_nominated_pod_gets_another_gpu_where_its_own_is_held() -> None:
    cluster = Claims([published("node-1", 2)], [builders.project("a", 2000)])
    first, claim = (
        claimed("first", exactly(selectors=(f'device.attributes["{DRIVER}"].index == 1',))),
        claimed("one"),
    )
    cluster.submit(job("first", "a", first), first)
    cluster.step()
    waiting = job("one", "a", claim, age=1)
    nominated = replace(waiting.pods[0], nominated_node="node-1", nominated_devices=(1,))
    cluster.submit(replace(waiting, pods=(nominated,)), claim)
    (binding,) = cluster.step().bindings
    assert binding.devices == (0,)


def test_all_users_of_a_claim_are_moved_or_none() -> None:
    """The devices of the ResourceClaim become free only when its last user has ended."""
    cluster = Claims([published("node-1", 2)], [builders.project("a", 1000), builders.project("b", 1000)])
    shared = claimed("shared")
    users = job("users", "a", shared, shared, pods=2)
    cluster.submit(replace(users, pods=(users.pods[0], replace(users.pods[1], request=Request()))), shared)
    cluster.step()
    first = claimed("first", exactly(selectors=(f'device.attributes["{DRIVER}"].index == 0',)))
    cluster.submit(job("chooser", "b", first, age=1), first)
    decision = cluster.step()
    assert {eviction.pod for eviction in decision.evictions} == {"users-0", "users-1"}
    cluster.settle()
    pods = [pod for workload in cluster.snapshot.workloads for pod in workload.pods]
    assert [(pod.name, pod.node) for pod in pods if pod.node is None] == []


def test_a_pod_that_needs_only_a_claim_keeps_its_nomination() -> None:
    """A claim counts once, with the first of its users. The others request no GPUs."""
    cluster = Claims([published("node-1", 1)], [builders.project("a", 1000)])
    held, older, claim = claimed("held"), claimed("older"), claimed("one")
    cluster.submit(job("held", "a", held), held)
    cluster.step()
    (running,) = cluster.snapshot.workloads
    leaving = replace(running, pods=(replace(running.pods[0], state=PodState.RELEASING),))
    cluster.snapshot = replace(cluster.snapshot, workloads=(leaving,))
    cluster.submit(job("older", "a", older, age=1), older)
    waiting = job("one", "a", claim, age=2)
    nominated = replace(waiting.pods[0], request=Request(), nominated_node="node-1")
    cluster.submit(replace(waiting, pods=(nominated,)), claim)
    assert [nomination.pod for nomination in cluster.step().nominations] == ["one-0"]


def test_a_claim_that_one_more_pod_starts_with_does_not_move_with_its_former_user() -> None:
    cluster = Claims([published("node-1", 2)], [builders.project("a", 1000), builders.project("b", 1000)])
    shared = claimed("shared")
    users = job("users", "a", shared, shared, pods=2)
    first, second = users.pods[0], replace(users.pods[1], request=Request())
    cluster.submit(replace(users, pods=(first,)), shared)
    cluster.step()
    (running,) = cluster.snapshot.workloads
    joining = replace(running, pods=(*running.pods, replace(second, claims=running.pods[0].claims)))
    cluster.snapshot = replace(cluster.snapshot, workloads=(joining,))
    chosen = claimed("chosen", exactly(selectors=(f'device.attributes["{DRIVER}"].index == 0',)))
    cluster.submit(job("chooser", "b", chosen, age=1), chosen)
    decision = cluster.step()
    assert {binding.pod: binding.grants for binding in decision.bindings} == {"users-1": ()}
    assert not decision.evictions
    cluster.settle()


def _shared_by_two(users: str) -> tuple[Workload, Claim]:
    """Return a workload of two pods with one claim, which counts with the first pod."""
    shared = claimed("shared")
    both = job(users, "a", shared, shared, pods=2)
    return replace(both, pods=(both.pods[0], replace(both.pods[1], request=Request()))), shared


def _taint_first_gpu(cluster: Claims) -> None:
    """Let the driver taint the first GPU of the only node."""
    (node,) = cluster.snapshot.nodes
    (listed,) = cluster.snapshot.dynamic.slices
    first, *others = listed.devices
    tainted = replace(first, taints=(DeviceTaint("unhealthy", "", "NoExecute"),))
    cluster.snapshot = replace(
        cluster.snapshot,
        nodes=(replace(node, unhealthy_gpus=(0,)),),
        dynamic=replace(cluster.snapshot.dynamic, slices=(replace(listed, devices=(tainted, *others)),)),
    )


def test_all_users_of_a_claim_leave_an_unhealthy_gpu_together() -> None:
    """One pod alone would return to the same GPU, because the other pods keep the claim on this GPU. Then the next
    pod would do so, and so on.
    """
    cluster = Claims([published("node-1", 2)], [builders.project("a", 1000)])
    users, shared = _shared_by_two("users")
    cluster.submit(users, shared)
    cluster.step()
    _taint_first_gpu(cluster)
    decision = cluster.step()
    assert {eviction.pod for eviction in decision.evictions} == {"users-0", "users-1"}
    cluster.settle()
    assert cluster.running() == {"users"}
    (listed,) = cluster.snapshot.dynamic.claims
    assert listed.allocation is not None
    assert [result.device_id[2] for result in listed.allocation.results] == ["gpu-1"]


def test_a_pod_that_shares_a_claim_remains_on_an_unhealthy_gpu() -> None:
    cluster = Claims([published("node-1", 2)], [builders.project("a", 1000)])
    users, shared = _shared_by_two("users")
    first, second = users.pods
    cluster.submit(replace(users, pods=(first,)), shared)
    cluster.submit(replace(job("other", "a", shared, age=1), pods=(replace(second, id="other-0"),)))
    cluster.step()
    _taint_first_gpu(cluster)
    decision = cluster.step()
    assert not decision.evictions
    assert decision.endangered.keys() == {"users"}


def _with_cards(cluster: Claims, *names: str) -> Claims:
    """Return the cluster, whose only node also has these network cards. Its GPUs come from the device plugin."""
    devices = [device(name, attributes={"index": index}) for index, name in enumerate(names)]
    cards = resource_slice(*devices, pool="cards", nodes=NodeChoice(node_name="node-1"))
    dynamic = replace(cluster.snapshot.dynamic, slices=(cards,))
    cluster.snapshot = replace(cluster.snapshot, dynamic=dynamic)
    return cluster


def _with_card(name: str, project: str, request: Request, *, age: int = 0) -> tuple[Workload, Claim]:
    """Return a pod with a claim for a card, and with GPUs requested by number or as fractions."""
    card = claimed(f"card-{name}")
    made = job(name, project, card, age=age)
    return replace(
        made, pods=(replace(made.pods[0], request=replace(request, claim_specs=(card.spec,))),)
    ), card


def test_gpus_of_a_device_plugin_are_counted_for_pods_with_claims_for_other_devices() -> None:
    cluster = _with_cards(Claims([builders.node("node-1", 2)], [builders.project("a", 3000)]), "x", "y", "z")
    for age, name in enumerate(("one", "two", "three")):
        cluster.submit(*_with_card(name, "a", Request(gpu_count=1), age=age))
    decision = plan(cluster.snapshot)
    assert sorted(binding.devices for binding in decision.bindings) == [(0,), (1,)]
    assert all(len(binding.grants) == 1 for binding in decision.bindings)
    assert set(decision.pending) == {"three"}


def test_parts_of_gpus_of_a_device_plugin_are_packed_for_pods_with_claims_too() -> None:
    cluster = _with_cards(Claims([builders.node("node-1", 2)], [builders.project("a", 2000)]), "x", "y", "z")
    for age, name in enumerate(("one", "two", "three")):
        cluster.submit(*_with_card(name, "a", Request(gpu_portion_milli=500), age=age))
    decision = plan(cluster.snapshot)
    assert sorted(binding.devices for binding in decision.bindings) == [(0,), (0,), (1,)]


def test_a_pod_with_a_claim_for_a_card_is_bound_to_the_gpu_that_was_kept_for_it() -> None:
    cluster = _with_cards(Claims([builders.node("node-1", 2)], [builders.project("a", 2000)]), "x", "y")
    made, card = _with_card("one", "a", Request(gpu_count=1))
    nominated = replace(made.pods[0], nominated_node="node-1", nominated_devices=(1,))
    cluster.submit(replace(made, pods=(nominated,)), card)
    other = builders.workload("other", "a", 1000, age=1)
    cluster.submit(other)
    devices = {binding.workload: binding.devices for binding in plan(cluster.snapshot).bindings}
    assert devices == {"one": (1,), "other": (0,)}


def part_of_shared_gpu(name: str, gib: int, **changes: object) -> Workload:
    base = builders.workload(name, "a", 0, age=len(name))
    request = Request(gpu_memory_mib=gib << 10)
    claim = Claim(
        "", "team", f"{name}-extended", ClaimSpec((exactly("gpu-part", selectors=(IS_SHAREABLE,)),))
    )
    pod = replace(base.pods[0], request=request, extended_claim=claim, **changes)  # type: ignore[arg-type]
    return replace(base, pods=(pod,))


def test_a_nominated_fraction_that_fits_to_the_byte_is_too_much_if_fractions_count_in_thousandths() -> None:
    """Three fractions of 5 of 16 GiB are 939 thousandths, and 1 GiB is 63: the next decision would withdraw such a
    nomination.
    """
    node = replace(published("node-1", 1), gpu_memory_mib=16 << 10)
    shared = resource_slice(
        device("gpu-0", memory="16Gi", shareable=True), pool="node-1", nodes=NodeChoice(node_name="node-1")
    )
    cluster = Claims([node], [builders.project("a", 1000)])
    cluster.snapshot = replace(cluster.snapshot, dynamic=DynamicResources((shared,), (CLASS,)))
    running = [part_of_shared_gpu(name, 5) for name in ("a", "bb", "ccc")]
    cluster.snapshot = replace(cluster.snapshot, workloads=tuple(running))
    assert len(cluster.step().bindings) == 3
    late = part_of_shared_gpu("dddd", 1, nominated_node="node-1", nominated_devices=(0,))
    cluster.submit(late)
    decision = cluster.step()
    assert (decision.bindings, decision.nominations) == ((), ())


def test_a_claim_gets_no_gpu_that_has_too_little_left_as_others_count_it() -> None:
    """A fraction beside a whole GPU, in one pod, counts as a whole GPU, although half of that GPU is unused."""
    node = replace(published("node-1", 3), gpu_memory_mib=16 << 10)
    shared = resource_slice(
        *(device(f"gpu-{index}", memory="16Gi", shareable=True) for index in range(3)),
        pool="node-1",
        nodes=NodeChoice(node_name="node-1"),
    )
    cluster = Claims([node], [builders.project("a", 4000)])
    cluster.snapshot = replace(cluster.snapshot, dynamic=DynamicResources((shared,), (CLASS,)))
    half = exactly(capacity=(("memory", parse_nano("8Gi")),))
    whole, part, other = claimed("whole"), claimed("part", half), claimed("other", half)
    cluster.submit(job("both", "a", whole, part), whole, part)
    (binding,) = cluster.step().bindings
    assert binding.devices == (0, 1)
    single = job("single", "a", other, age=1)
    waiting = replace(single.pods[0], request=Request(gpu_memory_mib=8 << 10, claim_specs=(other.spec,)))
    cluster.submit(replace(single, pods=(waiting,)), other)
    (binding,) = cluster.step().bindings
    assert binding.devices == (2,)


def test_a_nominee_takes_no_card_that_another_one_needs() -> None:
    """A nomination does not say which card is kept. The pod would take the first one, the only
    one for the other pod.
    """
    cluster = _with_cards(Claims([builders.node("node-1", 0)], [builders.project("a", 1000)]), "x", "y")
    chosen = claimed("chosen", exactly(selectors=(f'device.attributes["{DRIVER}"].index == 0',)))
    for age, claim in enumerate((claimed("any"), chosen)):
        made = job(claim.name, "a", claim, age=age)
        request = Request(claim_specs=(claim.spec,))
        pod = replace(made.pods[0], request=request, nominated_node="node-1")
        cluster.submit(replace(made, pods=(pod,)), claim)
    bindings = plan(cluster.snapshot).bindings
    cards = {binding.workload: binding.grants[0].allocation.results[0].device_id[2] for binding in bindings}
    assert cards == {"any": "y", "chosen": "x"}


def test_no_pod_is_nominated_to_admin_access_of_a_device_whose_counters_its_parts_keep() -> None:
    """The counters were free once the fraction was migrated, and then the other fraction took them: the nomination
    stayed.
    """
    whole, *parts = (
        device(name, attributes={"kind": name[:5]}, counters=(counters("gpu", memory=10**9),))
        for name in ("whole", "part-1", "part-2")
    )
    here = NodeChoice(node_name="node-1")
    slices = (
        resource_slice(whole, *parts, pool="gpus", slice_count=2, nodes=here),
        resource_slice(
            pool="gpus",
            name="counters",
            slice_count=2,
            nodes=here,
            counter_sets=(counters("gpu", memory=10**9),),
        ),
    )
    cluster = Claims([builders.node("node-1", 0)], [builders.project("a", 1000)])
    dynamic = replace(cluster.snapshot.dynamic, slices=slices)
    cluster.snapshot = replace(cluster.snapshot, dynamic=dynamic)
    for age, kind in enumerate(("part-", "whole")):
        selector = f'device.attributes["{DRIVER}"].kind == "{kind}"'
        request = exactly(selectors=(selector,), admin_access=True if kind == "whole" else None)
        claim = claimed(kind, request)
        made = job(kind, "a", claim, age=age)
        pod = replace(made.pods[0], request=Request(cpu_milli=1000, claim_specs=(claim.spec,)))
        cluster.submit(replace(made, pods=(pod,)), claim)
        decision = plan(cluster.snapshot)
        cluster.snapshot = after_decision(cluster.snapshot, decision)
    assert decision.bindings == ()
    assert decision.nominations == ()


def test_the_devices_of_a_claim_are_not_reclaimed_in_the_decision_that_binds_another_pod_with_it() -> None:
    cluster = Claims([published("node-1", 1)], [builders.project("a", 1000)])
    claim = claimed("one")
    large = job("large", "a", claim)
    cluster.submit(large, claim)
    allocation = plan(cluster.snapshot).bindings[0].grants[0].allocation
    held = ObservedClaim(claim, allocation, ("large-0",))
    (pod,) = large.pods
    large = replace(large, pods=(replace(pod, request=replace(pod.request, cpu_milli=1 << 40)),))
    dynamic = replace(cluster.snapshot.dynamic, claims=(held,))
    cluster.snapshot = replace(cluster.snapshot, workloads=(large,), dynamic=dynamic)
    small = job("small", "a", claim, age=1)
    cluster.submit(replace(small, pods=(replace(small.pods[0], request=Request()),)))
    decision = plan(cluster.snapshot)
    assert [binding.pod for binding in decision.bindings] == ["small-0"]
    assert decision.deallocations == ()


def test_a_nominated_pod_waits_for_its_own_gpu_rather_than_take_one_that_is_free() -> None:
    """Another pod can be nominated to the free GPU, and would then be migrated."""
    cluster = Claims([published("node-1", 2)], [builders.project("a", 2000)])
    first = claimed("first", exactly(selectors=(f'device.attributes["{DRIVER}"].index == 1',)))
    cluster.submit(job("first", "a", first), first)
    cluster.step()
    (running,) = cluster.snapshot.workloads
    leaving = replace(running, pods=(replace(running.pods[0], state=PodState.RELEASING),))
    cluster.snapshot = replace(cluster.snapshot, workloads=(leaving,))
    for age, (name, device_index) in enumerate((("older", 1), ("younger", 0)), start=1):
        claim = claimed(name)
        waiting = job(name, "a", claim, age=age)
        place = {"nominated_node": "node-1", "nominated_devices": (device_index,)}
        cluster.submit(replace(waiting, pods=(replace(waiting.pods[0], **place),)), claim)  # type: ignore[arg-type]
    decision = plan(cluster.snapshot)
    assert [(binding.pod, binding.devices) for binding in decision.bindings] == [("younger-0", (0,))]
    assert [(listed.pod, listed.devices) for listed in decision.nominations] == [("older-0", (1,))]


def test_an_evicted_pod_with_a_claim_could_keep_running_while_its_device_is_unused() -> None:
    cluster = Claims([published("node-1", 1)], [builders.project("a", 2000)])
    held, claim = claimed("held"), claimed("one")
    cluster.submit(job("held", "a", held), held)
    cluster.step()
    cluster.submit(job("one", "a", claim, age=1), claim)
    session = Session(ClusterState(cluster.snapshot), ACTION_NAMES)
    runs, waits = session.workload("held"), session.workload("one")
    session.ledger.evict(runs, runs.pods[0])
    assert session.placer.can_keep_running(runs.pods[0])
    where = session.placer.find(waits, waits.pods[0])
    assert where is not None
    session.ledger.place(waits, waits.pods[0], where)
    assert not session.placer.can_keep_running(runs.pods[0])
