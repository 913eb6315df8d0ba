"""The role helm: a program of the controller is used, and an archive is used only with its digest."""

import hashlib
import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.running import Result, play

pytestmark = pytest.mark.lab


def archive(path: Path) -> str:
    """Write an archive with the layout of Helm's, and return its SHA-256."""
    program = b"#!/bin/sh\necho v3.18.4+gd80839c\n"
    with tarfile.open(path, mode="w:gz") as packed:
        member = tarfile.TarInfo("linux-amd64/helm")
        member.size, member.mode = len(program), 0o755
        packed.addfile(member, io.BytesIO(program))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find(root: Path, times: int = 1, **variables: Any) -> Result:
    """Run the role, and then the Helm that it found."""
    role = {"name": "Find", "ansible.builtin.include_role": {"name": "helm"}, "vars": variables}
    call = {
        "name": "Call",
        "ansible.builtin.command": {"argv": ["{{ __helm_found.stdout }}"]},
        "changed_when": False,
    }
    tasks = [role for _ in range(times)]
    (root / "play.yml").write_text(
        yaml.safe_dump([{"name": "Work", "hosts": "all", "gather_facts": False, "tasks": [*tasks, call]}])
    )
    words = ["-i", "here,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    return play(root / "play.yml", root, *words)


def test_an_archive_is_unpacked_once_and_only_with_its_digest(tmp_path: Path) -> None:
    file, target = tmp_path / "helm.tar.gz", tmp_path / "there"
    sha256 = archive(file)
    known: dict[str, Any] = {"helm_archive": str(file), "helm_directory": str(target)}
    refused = find(tmp_path, helm_sha256="0" * 64, **known)
    assert refused.code
    assert any("checksum" in failure for failure in refused.failures), refused.failures
    assert not (target / "linux-amd64").exists()
    done = find(tmp_path, times=2, helm_sha256=sha256, **known)
    assert done.code == 0, done.failures
    assert (target / "linux-amd64" / "helm").is_file()
    assert len(done.changes) == 2, "fetched and unpacked once"


def test_a_part_of_the_program_is_completed(tmp_path: Path) -> None:
    """A run that was killed in the middle has left the beginning of the file."""
    file, target = tmp_path / "helm.tar.gz", tmp_path / "there"
    sha256 = archive(file)
    program = target / "linux-amd64" / "helm"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = find(tmp_path, helm_archive=str(file), helm_directory=str(target), helm_sha256=sha256)
    assert done.code == 0, done.failures
    assert "echo v3" in program.read_text()


@pytest.mark.parametrize(
    ("says", "is_used"),
    [
        ("v3.19.0+gabcdef0", True),
        ("v4.0.1+gabcdef0", False),
        ("Client: v2.17.0+gabcdef0", False),
        ("v30.1.0", False),
    ],
)
def test_only_helm_3_is_used(tmp_path: Path, says: str, is_used: bool) -> None:
    program = tmp_path / "helm"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    done = find(tmp_path, helm_program=str(program), helm_directory=str(tmp_path / "no"))
    assert (done.code == 0) is is_used, done.failures
    assert done.changes == []
    if not is_used:
        assert (
            f"{program} on the controller is not Helm 3; `helm version --short` says: {says}"
            in done.failures[0]
        )


def test_a_missing_program_is_refused(tmp_path: Path) -> None:
    refused = find(tmp_path, helm_program="/nowhere/helm", helm_directory=str(tmp_path / "no"))
    assert any("there is no /nowhere/helm on the controller" in failure for failure in refused.failures)
