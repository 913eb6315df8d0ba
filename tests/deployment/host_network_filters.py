"""The filters of the role host_network as functions."""

import importlib.util
from collections.abc import Callable
from typing import Any

from tests.deployment.running import ROOT

FOLDER = ROOT / "roles" / "host_network" / "filter_plugins"


def filters() -> dict[str, Callable[..., Any]]:
    """Return the filters of all files by name."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found |= module.FilterModule().filters()
    return found
