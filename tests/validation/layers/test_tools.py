"""The commands of validation/layers/tools.py, run in a shell on this machine."""

import os
import subprocess
from pathlib import Path

import pytest

from validation.judge.hosts.host_layer import DeclaredHost, HostSite
from validation.layers.tools import TOOLS

HOST = DeclaredHost("dgx1-1", "dgx-1", 8)
NODE = os.uname().nodename


def shell(tool: str, mount: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of a tool with this mount; `programs` comes first on PATH."""
    line = TOOLS[tool].line(HostSite(mounts=[str(mount)], nonce="n"), HOST)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", line], env=path, capture_output=True, text=True, check=False)


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    directory = tmp_path / "mount"
    directory.mkdir()
    return directory


def test_a_file_is_written_read_and_removed(tmp_path: Path, mount: Path) -> None:
    assert shell("write", mount, tmp_path).stdout == f"{mount} {NODE}\n"
    assert [path.name for path in mount.iterdir()] == [f".muster-validate-n.{NODE}"]
    assert shell("read", mount, tmp_path).stdout == f"{mount} {NODE}\n"
    shell("remove", mount, tmp_path)
    assert list(mount.iterdir()) == []


def test_nothing_is_written_through_a_link_that_lies_there(tmp_path: Path, mount: Path) -> None:
    keys = tmp_path / "authorized_keys"
    keys.write_text("a key\n")
    (mount / f".muster-validate-n.{NODE}").symlink_to(keys)
    assert shell("write", mount, tmp_path).stdout == ""
    assert keys.read_text() == "a key\n"


def test_fio_does_not_run_in_a_directory_of_others(tmp_path: Path, mount: Path) -> None:
    others, programs = tmp_path / "others", tmp_path / "bin"
    others.mkdir()
    programs.mkdir()
    (programs / "fio").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (programs / "fio").chmod(0o755)
    link = mount / f".muster-validate-fio-n.{NODE}"
    link.symlink_to(others)
    assert shell("fio", mount, programs).returncode != 0
    assert not (tmp_path / "ran").exists()
    link.unlink()
    assert shell("fio", mount, programs).returncode == 0
    assert (tmp_path / "ran").exists()
    assert list(mount.iterdir()) == []


@pytest.mark.parametrize(
    ("log", "journal", "printed"),
    [
        ("[ 0.0] Linux version 6.8", "other", "[ 0.0] Linux version 6.8"),
        ("[ 9.0] NVRM: late", "[ 0.0] Linux version 6.8", "[ 0.0] Linux version 6.8"),
        ("[ 9.0] NVRM: late", "-- No entries --", "[ 9.0] NVRM: late"),
    ],
)
def test_the_log_is_read_from_the_boot_on(tmp_path: Path, log: str, journal: str, printed: str) -> None:
    for name, text in (("dmesg", log), ("journalctl", journal), ("sudo", "")):
        (tmp_path / name).write_text(
            f"#!/bin/sh\necho '{text}'\n" if text else '#!/bin/sh\nshift; exec "$@"\n'
        )
        (tmp_path / name).chmod(0o755)
    assert shell("kernel-log", tmp_path, tmp_path).stdout == f"{printed}\n"
    (tmp_path / "dmesg").write_text("#!/bin/sh\nexit 3\n")
    assert shell("kernel-log", tmp_path, tmp_path).returncode == 3
