"""A control plane for tests of the operator that change its nodes or its faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab of the test's own, with the two nodes of TR-4858."""
    lab = start("own", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()
