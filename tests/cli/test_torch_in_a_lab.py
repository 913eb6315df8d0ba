"""`submit --nodes` with PyTorch: two pods of two real kubelets sum numbers by gloo.

MUSTER_TORCH names a folder with PyTorch's packages for this Python (`pip install --target FOLDER torch`, 4 GB).
"""

import asyncio
import os
from pathlib import Path

import pytest

import musterlab.cluster
from tests.control.operators import must, muster, operator, prepare
from tests.validation.training_image import build_python

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes, pytest.mark.rare]

TORCH = os.environ.get("MUSTER_TORCH", "")
IMAGE = "docker.io/library/only-python:1"
TRAIN = """\
import torch, torch.distributed as distributed
distributed.init_process_group("gloo")
number = torch.tensor([10 ** distributed.get_rank()])
distributed.all_reduce(number)
print(distributed.get_rank(), "of", distributed.get_world_size(), "sum", number.item())
"""


@pytest.mark.skipif(not TORCH, reason="MUSTER_TORCH names no folder with PyTorch's packages")
def test_pods_of_two_nodes_sum_by_gloo_with_and_without_torchrun(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(TRAIN)
    lab = musterlab.cluster.start(
        "torch",
        nodes=0,
        real_nodes=2,
        detach=False,
        state_dir=tmp_path / "labs",
        image_archives=[build_python(tmp_path, IMAGE, sorted(Path(TORCH).glob("torch/**/*.so")))],
    )
    try:
        account = asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator-kubeconfig"))
        with operator(account, tmp_path / "operator.log"):
            readable = [word for path in (TORCH, str(tmp_path)) for word in ("--directory", f"{path}:ro")]
            must(lab.kubeconfig, "project", "create", "team-a", "--gpu", "4", *readable)
            must(lab.kubeconfig, "project", "set", "team-a")
            for name, words in (("plain", []), ("torchrun", ["-m", "torch.distributed.run"])):
                assert sums(lab.kubeconfig, tmp_path / "code", name, words) == [
                    "0 of 2 sum 11",
                    "1 of 2 sum 11",
                ]
    finally:
        lab.stop()


def sums(config: Path, code: Path, name: str, words: list[str]) -> list[str]:
    """Run the program in two pods, and return the lines that they printed."""
    mounts = ("-v", f"{TORCH}:/torch:ro", "-v", f"{code}:/work:ro", "-e", "PYTHONPATH=/torch")
    must(
        config, "submit", name, "-i", IMAGE, "--nodes", "2", "-g", "1", *mounts,
        "--command", "--", "python", *words, "/work/train.py",
    )  # fmt: skip
    ended = muster(config, "wait", name, "--for", "succeeded", "--timeout", "10m", timeout=900)
    logs = must(config, "logs", name, "--all-pods")
    assert ended.returncode == 0, logs
    return sorted(line.partition("] ")[2] for line in logs.splitlines() if " sum " in line)
