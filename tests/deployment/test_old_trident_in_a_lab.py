"""Trident of before there were backends as objects: its operator of that age, and tridentctl in its own pod."""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import musterlab.cluster
from tests.deployment import tridentctl_double
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.test_storage_in_a_lab import PASSWORD, SITE
from tests.deployment.trident_double import archive, trident

pytestmark = pytest.mark.lab

RELEASE = "20.04.0"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    running = musterlab.cluster.start("old", nodes=1, detach=False, state_dir=tmp_path / "labs")
    with trident(running.kubeconfig, RELEASE):
        yield running.kubeconfig
    running.stop()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the `kubectl` that reaches the double, and what it keeps."""
    directory = tmp_path / "programs"
    directory.mkdir()
    (directory / "kubectl").write_text(f"#!{sys.executable}\n" + Path(tridentctl_double.__file__).read_text())
    (directory / "kubectl").chmod(0o755)
    (directory / "login").write_text("another password")
    return directory


def test_a_backend_comes_by_tridentctl_without_a_secret_on_a_command_line(
    site: SiteUnderTest, kubeconfig: Path, programs: Path, tmp_path: Path
) -> None:
    only = ("--from", "trident", "--until", "trident")
    with socket.create_server(("127.0.0.1", 0)) as lif:
        text = SITE.format(
            release=RELEASE, port=lif.getsockname()[1], directory=tmp_path / "unpacked",
            archive=archive(tmp_path / "trident-installer.tar.gz", before_21=True),
        ).replace('"1.36.3"', '"1.17.6"').replace('"9.16.1"', '"9.6P4"')  # fmt: skip
        site.write(text + f"  trident_kubectl: {programs}/no-kubectl\n")
        site.environment |= {
            "KUBECONFIG": str(kubeconfig), "ADMIN_PASSWORD": "canary-of-admin", "TRIDENT_PASSWORD": PASSWORD,
        }  # fmt: skip
        without = site.muster("install", *only)
        assert "takes its backends through tridentctl alone: install kubectl" in " ".join(
            without.stderr.split()
        )

        site.write(text + f"  trident_kubectl: {programs}/kubectl\n")
        refused = site.muster("install", *only)
        assert refused.returncode == 1
        assert "backend a800-nas was refused: Error: could not create backend" in " ".join(
            refused.stderr.split()
        )
        assert "cause   ONTAP does not accept the login" in refused.stderr, refused.stderr

        (programs / "login").write_text(PASSWORD)
        done = site.muster("resume")
        assert done.returncode == 0, done.stderr
        again = site.muster("install", *only)
        assert again.returncode == 0, again.stderr
        assert ", 0 changed" in again.stderr, again.stderr
    kept = json.loads((programs / "backends.json").read_text())
    assert kept["a800-nas"]["config"]["managementLIF"] == "127.0.0.1"
    assert "useREST" not in kept["a800-nas"]["config"]
    assert PASSWORD not in (programs / "calls").read_text()

    (programs / "backends.json").write_text('{"a800-nas": {"state": "failed"}}')
    failed = site.muster("verify")
    assert failed.returncode == 1
    assert "backend a800-nas is failed" in failed.stderr
    for path in [*site.state.rglob("*"), *(tmp_path / "unpacked").rglob("*")]:
        assert not path.is_file() or PASSWORD not in path.read_text(errors="replace"), path
    removed = site.muster("teardown", "--yes")
    assert removed.returncode == 0, removed.stderr
