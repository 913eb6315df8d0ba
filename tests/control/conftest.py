"""A lab for each test of the operator that changes the nodes or causes faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    """Yield a lab for this test, with the two nodes of TR-4858."""
    lab = start("own", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()
