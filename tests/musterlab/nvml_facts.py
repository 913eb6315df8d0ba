"""The folder of facts about NVIDIA's programs."""

import os
from pathlib import Path

import pytest


def facts_folder() -> Path:
    """Return the folder that MUSTER_FACTS names, by default `shared/facts` beside the repository; skip without one."""
    folder = Path(os.environ.get("MUSTER_FACTS") or Path(__file__).parents[3] / "shared" / "facts")
    if not (folder / "nvidia.json").is_file():
        pytest.skip(f"MUSTER_FACTS names no folder with nvidia.json: {folder}")
    return folder
