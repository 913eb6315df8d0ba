"""Quotas for CPU and memory that cannot be satisfied together are named in one line, like those for GPUs."""

import pytest

from orchestrator.planner.accounting.quota import cpu_excess, memory_excess, quota_excess

GI = 1 << 30


@pytest.mark.parametrize(
    ("projects", "capacity", "said"),
    [
        ({"a": (None, 64_000), "b": (None, 16_000)}, 80_000, None),
        (
            {"a": (None, 64_000), "b": (None, 16_500)},
            80_000,
            "the quotas add up to 80.5 CPUs, the cluster has 80",
        ),
        ({"a": (None, None), "b": (None, 80_000)}, 80_000, None),
        (
            {"d": (None, 10_000), "a": ("d", 8_000), "b": ("d", 4_000)},
            80_000,
            "the quotas of the projects in d add up to 12 CPUs, d itself has 10",
        ),
        ({"d": (None, None), "a": ("d", 8_000), "b": ("d", 4_000)}, 1_000, None),
    ],
)
def test_cpus(projects: dict[str, tuple[str | None, int | None]], capacity: int, said: str | None) -> None:
    assert cpu_excess(projects, capacity) == said


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        (512 * GI, None),
        (512 * GI + GI // 2, "the quotas add up to 512.5Gi of memory, the cluster has 512Gi"),
    ],
)
def test_memory(quota: int, said: str | None) -> None:
    assert memory_excess({"a": (None, quota)}, 512 * GI) == said


def test_gpus_are_said_as_before() -> None:
    assert quota_excess({"a": (None, 4500)}, 4000) == "the quotas add up to 4.5 GPUs, the cluster has 4"
