"""`muster project set` in a scenario changes a copy of the context, and no file of the user."""

from pathlib import Path

import yaml

from orchestrator.cluster.kubeconfig import load_access, set_default_namespace
from validation.targets.own_context import with_own_context


def written(directory: Path) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "site",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "site", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
    }
    (directory / "token").write_text("secret")
    path = directory / "config"
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_default_project_is_set_in_the_copy_alone(tmp_path: Path) -> None:
    site, private = tmp_path / "site", tmp_path / "private"
    site.mkdir()
    private.mkdir()
    config = written(site)
    before = config.read_bytes()
    environ = {"KUBECONFIG": with_own_context(config, private)}
    assert load_access(environ=environ).namespace == "mine"
    changed = set_default_namespace("muster-team-a", environ=environ)
    access = load_access(environ=environ)
    assert (access.namespace, access.server, access.token()) == (
        "muster-team-a",
        "http://127.0.0.1:1",
        "secret",
    )
    assert changed.parent == private
    assert config.read_bytes() == before


def test_without_a_kubeconfig_nothing_is_copied(tmp_path: Path) -> None:
    assert with_own_context(tmp_path / "none", tmp_path) == str(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
