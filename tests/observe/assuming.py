"""Replaces all assumptions of an executor in the pod cache."""

from collections.abc import Collection, Mapping

from orchestrator.observe.pod_cache import PodCache
from orchestrator.planner.placements import Placement


def assume(
    cache: PodCache,
    *,
    bindings: Mapping[str, Placement] | None = None,
    evictions: Collection[str] = (),
    nominations: Mapping[str, Placement | None] | None = None,
) -> None:
    """Let the cache assume exactly these bindings, evictions and nominations, by pod uid, and forget all others."""
    for uid in set(cache.bindings) - set(bindings or {}):
        cache.forget_binding(uid)
    for uid in set(cache.evictions) - set(evictions):
        cache.forget_eviction(uid)
    for uid in set(cache.nominations) - set(nominations or {}):
        cache.forget_nomination(uid)
    for uid, placement in (bindings or {}).items():
        cache.bind(uid, placement)
    for uid in evictions:
        cache.evict(uid)
    for uid, nomination in (nominations or {}).items():
        cache.nominate(uid, nomination)
