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
    program = b"#!/bin/sh\necho fetched\n"
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


def test_a_program_of_the_controller_is_used_and_a_missing_one_refused(tmp_path: Path) -> None:
    assert find(tmp_path, helm_program=sys.executable, helm_directory=str(tmp_path / "no")).changes == []
    refused = find(tmp_path, helm_program="/nowhere/helm", helm_directory=str(tmp_path / "no"))
    assert any("there is no /nowhere/helm on the controller" in failure for failure in refused.failures)
