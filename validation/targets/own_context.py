"""A kubeconfig of the run, so that `muster project set` in a scenario changes no file of the user."""

import os
from pathlib import Path

import yaml

from orchestrator.cluster.kubeconfig_files import Merged, kubeconfig_files


def with_own_context(kubeconfig: Path, directory: Path) -> str:
    """Return a value of KUBECONFIG: a new file in `directory` with a copy of the current context, then the given files.

    The first file that has a context counts, and is the file that `muster project set` changes. Without a kubeconfig
    there is no copy. Raises ConfigurationError.
    """
    files = kubeconfig_files(None, {"KUBECONFIG": str(kubeconfig)}, None) if _exists(kubeconfig) else []
    if not files:
        return str(kubeconfig)
    merged = Merged(files)
    name = merged.context_name(None)
    own = directory / "context"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": merged.entry("contexts", name).fields}],
    }
    own.write_text(yaml.safe_dump(document))
    return os.pathsep.join([str(own), *map(str, files)])


def _exists(kubeconfig: Path) -> bool:
    return any(Path(part).is_file() for part in str(kubeconfig).split(os.pathsep))
