"""The planner's values: copies with other states, placements and pods, and the amounts that count against quotas."""

import copy
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planner.model import Pod, PodState, Request, SubGroup, TopologyRule, Workload

amounts = st.integers(0, 1 << 40)
requests = st.builds(
    Request,
    gpu_count=st.integers(0, 16),
    gpu_portion_milli=st.integers(0, 999),
    cpu_milli=amounts,
    memory_bytes=amounts,
    shared_devices=st.integers(1, 8),
)
pods = st.builds(
    Pod,
    id=st.text(max_size=3),
    name=st.text(max_size=3),
    request=requests,
    state=st.sampled_from(PodState),
    node=st.none() | st.text(max_size=3),
    devices=st.lists(st.integers(0, 7), max_size=3).map(tuple),
    sub_group=st.text(max_size=3),
    priority=st.integers(-3, 3),
    replaced=st.booleans(),
    stuck=st.booleans(),
    max_runtime_seconds=st.none() | st.integers(0, 9),
    ends_by_us=st.integers(0, 9),
    nominated_node=st.none() | st.text(max_size=3),
    nominated_devices=st.lists(st.integers(0, 7), max_size=3).map(tuple),
)


@given(requests)
def test_a_request_counts_whole_devices_and_its_part_of_each_shared_one(request: Request) -> None:
    milli = request.gpu_count * 1000 + request.gpu_portion_milli * request.shared_devices
    assert request.gpu_milli == milli
    assert request.amounts == (milli, request.cpu_milli, request.memory_bytes)


@given(requests, st.integers(0, 16))
def test_copies_of_a_request_count_their_own_amounts(request: Request, gpu_count: int) -> None:
    assert replace(request, gpu_count=gpu_count).amounts == (
        request.gpu_milli + (gpu_count - request.gpu_count) * 1000,
        request.cpu_milli,
        request.memory_bytes,
    )
    copied = copy.deepcopy(request)
    assert copied == request
    assert copied.amounts == request.amounts


@given(pods, st.sampled_from(PodState))
def test_a_pod_in_another_state_or_place_is_the_same_otherwise(pod: Pod, state: PodState) -> None:
    assert pod.in_state(state) == replace(pod, state=state)
    assert pod.placed(state, "n1", (3,)) == replace(pod, state=state, node="n1", devices=(3,))


@given(pods, pods, st.integers(0, 9))
def test_a_workload_with_other_pods_is_the_same_otherwise(first: Pod, second: Pod, number: int) -> None:
    workload = Workload(
        "id",
        "name",
        "project",
        priority=number,
        preemptible=True,
        created_at_us=number,
        pods=(first,),
        min_member=number,
        interactive=True,
        started_at_us=number,
        groups=SubGroup("all", number),
        topology=TopologyRule(("rack",)),
        stale_since_us=number,
        stale_grace_seconds=number,
        evicts_from_us=number,
        waiting_since_us=number,
    )
    changed = workload.with_pods((first, second))
    assert changed == replace(workload, pods=(first, second))
