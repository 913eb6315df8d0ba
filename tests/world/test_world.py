"""Random lives and saturated clusters, with a check of each decision: 27 seeds in `make test`, 73 in `make test-rare`.

`make soak` runs thousands of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.world.soak import live, saturate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.world.soak import Failure

SLOW = (0, 26, 29, 32)
"""The lives of these seeds take as long as those of all others together."""
SEEDS = [
    pytest.param(seed, marks=pytest.mark.rare) if seed in SLOW or seed >= 30 else seed for seed in range(100)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life(seed: int) -> None:
    assert lines(live(seed, steps=40).failures) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trees", [False, True], ids=["flat", "tree"])
def test_a_saturated_cluster(seed: int, trees: bool) -> None:
    assert lines(saturate(seed, trees=trees).failures) == []


@pytest.mark.parametrize(
    ("seed", "trees"),
    [
        (108, False),
        (316, False),
        (338, False),
        (342, False),
        (1484, False),
        (571, True),
        (375, True),
        (357, True),
    ],
)
def test_a_cluster_with_constraints_between_pods_or_with_failing_starts(seed: int, trees: bool) -> None:
    assert lines(saturate(seed, trees=trees).failures) == []


def lines(failures: Iterable[Failure]) -> list[str]:
    return [str(failure.violation) for failure in failures]
