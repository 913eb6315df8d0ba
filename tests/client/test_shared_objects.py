"""Equal objects in several caches share memory, and no object is confused with another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from orchestrator.client.shared_objects import SharedObjects
from orchestrator.cluster.device_objects import ResourceSlice
from orchestrator.cluster.objects import Job, Pod
from orchestrator.cluster.resources import JOBS, PODS, RESOURCE_SLICES


def raw(uid: str, version: str = "1", **metadata: object) -> msgspec.Raw:
    return msgspec.Raw(
        msgspec.json.encode({"metadata": {"name": "a", "uid": uid, "resourceVersion": version, **metadata}})
    )


def test_an_equal_object_is_the_one_that_is_there() -> None:
    decode = SharedObjects().decoder(PODS, Pod)
    assert decode(raw("u")) is decode(raw("u"))


def test_an_object_that_claims_to_be_another_is_not_taken_for_it() -> None:
    decode = SharedObjects().decoder(PODS, Pod)
    ours = decode(raw("u", labels={"team": "b"}))
    theirs = decode(raw("u", labels={"team": "a"}))
    assert (ours.metadata.labels, theirs.metadata.labels) == ({"team": "b"}, {"team": "a"})


def test_kinds_do_not_mix() -> None:
    shared = SharedObjects()
    shared.decoder(PODS, Pod)(raw("u"))
    assert isinstance(shared.decoder(JOBS, Job)(raw("u")), Job)


def test_objects_whose_version_the_server_chooses_are_shared_too() -> None:
    decode = SharedObjects().decoder(RESOURCE_SLICES, ResourceSlice)
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}}
    slice_ = msgspec.Raw(msgspec.json.encode({"metadata": {"name": "a", "uid": "u"}, "spec": spec}))
    assert decode(slice_) is decode(slice_)


@dataclass
class Cache:
    """The used interface of a cache."""

    request: tuple[object, ...] = ("/api/v1/pods",)
    kind: str = "Pod"
    is_synced: bool = True
    problem: Exception | None = None
    objects: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("other", "is_taken"),
    [
        (Cache(), True),
        (Cache(request=("/api/v1/namespaces/team-b/pods",)), False),
        (Cache(is_synced=False), False),
        (Cache(problem=TimeoutError()), False),
    ],
    ids=["current", "another request", "not there yet", "behind"],
)
async def test_a_cache_begins_only_with_a_current_one_of_the_same_request(other: Any, is_taken: bool) -> None:
    shared, cache = SharedObjects(), Cache(is_synced=False)
    caches: Any = [other, cache]
    with shared.used_by(caches):
        async with shared.beginning(caches[1]) as beginning:
            assert (beginning is other) == is_taken


def test_no_text_is_kept_when_all_caches_have_ended() -> None:
    shared, cache = SharedObjects(), Cache()
    caches: Any = [cache]
    with shared.used_by(caches):
        cache.objects["u"] = shared.decoder(PODS, Pod)(raw("u", namespace="team-b"))
        assert shared.texts
    assert not shared.texts
