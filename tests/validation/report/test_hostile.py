"""On hostile directories, `muster report` soon ends with an error line, and takes little memory."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.errors import MusterError
from tests.validation.replay import GANG, run_command, settings
from validation.report import files, log, manifest, renderings
from validation.report.verify import verify
from validation.report_command import report

MAX_SECONDS = 5
MAX_MIB = 300
EVIL = "\x1b]0;title\x07\u202eSSAP\u202c"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("honest") / "r"
    code, _ = run_command([GANG], settings(directory, parts=["gangs"]))
    assert code == 0
    return directory


@pytest.fixture(scope="module")
def with_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a record with output of its operator and its installation."""
    directory = tmp_path_factory.mktemp("files") / "r"
    (directory / "install").mkdir(parents=True)
    for name in ("operator.log", "install/journal.jsonl"):
        (directory / name).write_text(f"{name}\n")
    run_command([GANG], settings(directory, parts=["gangs"]))
    return directory


@pytest.fixture
def copy(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "r"))


def sealed(directory: Path, *lines: bytes) -> None:
    """Write a manifest of the files in the directory, with these lines added."""
    body = manifest.render(directory).rpartition(b"# sha256")[0] + b"".join(line + b"\n" for line in lines)
    own = b"# sha256 of the lines above: " + hashlib.sha256(body).hexdigest().encode() + b"\n"
    (directory / manifest.NAME).write_bytes(body + own)


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return a function that replaces a file of the record by something else."""

    def change(directory: Path) -> None:
        (directory / name).unlink()
        make(directory / name)

    return change


def sparse(path: Path, size: int = 6 << 30) -> None:
    path.touch()
    os.truncate(path, size)


def hidden(directory: Path) -> None:
    (directory / "install").mkdir()
    (directory / "install" / manifest.NAME).write_text("another log\n")


def cut_with_fifo(directory: Path) -> None:
    for name in (manifest.NAME, "report.json", log.NAME):
        (directory / name).unlink()
    os.mkfifo(directory / log.NAME)


def nested(directory: Path) -> None:
    deep = "[" * 20_000 + "]" * 20_000
    text = (directory / log.NAME).read_text().replace('"target":{', f'"target":{{"x":{deep},', 1)
    (directory / log.NAME).write_text(text)
    sealed(directory)


def one_long_line(directory: Path) -> None:
    sparse(directory / log.NAME, 1 << 27)
    sealed(directory)


def deep_directories(directory: Path) -> None:
    (directory / "/".join("d" * 40)).mkdir(parents=True)


def many_files(directory: Path) -> None:
    for number in range(files.MAX_FILES + 1):
        os.mknod(directory / f"f{number}")


def nested_answers(directory: Path) -> None:
    """Write a log whose entries have the right form but name missing objects."""
    lines = (directory / log.NAME).read_text().splitlines()
    lines[1:1] = [
        '{"entry":"scenario","scenario":"nowhere","tMs":0}',
        '{"entry":"began","check":"x","tMs":0}',
    ]
    (directory / log.NAME).write_text("\n".join(lines) + "\n")
    sealed(directory)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "manifest in a sub-directory": hidden,
    "manifest is a FIFO": instead(manifest.NAME, os.mkfifo),
    "manifest is a directory": instead(manifest.NAME, os.mkdir),
    "record is a directory": instead("report.json", os.mkdir),
    "manifest is a link to an endless file": instead(
        manifest.NAME, lambda path: path.symlink_to("/dev/zero")
    ),
    "manifest of 6 GB": instead(manifest.NAME, sparse),
    "record of 6 GB": instead("report.json", sparse),
    "log is a FIFO": instead(log.NAME, os.mkfifo),
    "cut run with a FIFO": cut_with_fifo,
    "file of 6 GB": lambda directory: sparse(directory / "operator.log"),
    "log of one line": one_long_line,
    "nested arrays": nested,
    "entries of another run": nested_answers,
    "manifest that is not UTF-8": lambda directory: sealed(directory, b"0" * 64 + b"  \xff\xfe"),
    "a line twice": lambda directory: sealed(
        directory, (directory / manifest.NAME).read_bytes().split(b"\n")[0]
    ),
    "name that is not UTF-8": lambda directory: Path(
        os.fsdecode(os.fsencode(directory) + b"/\xff.txt")
    ).touch(),
    "name that a terminal obeys": lambda directory: (directory / f"{EVIL}.txt").touch(),
    "name with a line feed": lambda directory: (directory / "a\nb").touch(),
    "link to a directory": lambda directory: (directory / "sub").symlink_to("/etc"),
    "socket": lambda directory: os.mknod(directory / "s", 0o140644),
    "deep directories": deep_directories,
    "many files": many_files,
    "statement is a FIFO": lambda directory: os.mkfifo(directory / "statement.json"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_directory_is_refused_in_a_line(name: str, copy: Path) -> None:
    HOSTILE[name](copy)
    for command in ("verify", "show", "rejudge") if "cut" in name else ("verify",):
        begin = time.monotonic()
        done = CliRunner().invoke(report, [command, str(copy)])
        assert time.monotonic() - begin < MAX_SECONDS
        assert done.exit_code in {1, 3}
        words = done.output or str(done.exception)
        assert words
        assert not {"\x1b", "\u202e"} & set(done.output)
        assert isinstance(done.exception, SystemExit | MusterError), done.exception


def test_the_worst_of_them_take_little_memory(copy: Path) -> None:
    """It runs in a new process by exec. In a forked process, `ru_maxrss` would count the memory of the parent."""
    one_long_line(copy)
    script = (
        "import sys\nfrom pathlib import Path\nfrom validation.report.verify import verify\n"
        "print(verify(Path(sys.argv[1])).problems)\n"
        "words = Path('/proc/self/status').read_text().split()\n"
        "print(int(words[words.index('VmHWM:') + 1]) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", script, copy], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "has a line of more than" in lines[0]
    assert int(lines[1]) < MAX_MIB


@pytest.mark.parametrize("name", renderings.NAMES)
def test_a_rendering_that_says_something_else_is_refused(name: str, copy: Path) -> None:
    path = copy / name
    for content in (path.read_bytes().replace(b"FAIL", b"PASS") + b" ", b""):
        path.write_bytes(content)
        sealed(copy)
        assert verify(copy).problems == [
            f"{name}: does not show the content of report.json; `muster report render` writes it again"
        ]
    path.unlink()
    sealed(copy)
    (line,) = verify(copy).problems
    assert f"{name}: cannot be read: No such file" in line


def extra(directory: Path) -> None:
    (directory / "NOTE.txt").write_text("all PASS\n")


def another(directory: Path) -> None:
    (directory / "operator.log").write_text("nothing happened\n")


def without(directory: Path) -> None:
    (directory / "install" / "journal.jsonl").unlink()


def elsewhere(directory: Path) -> None:
    (directory / "operator.log").rename(directory / "install" / "operator.log")


@pytest.mark.parametrize("change", [extra, another, without, elsewhere])
def test_a_file_that_the_log_does_not_name_is_refused(
    change: Callable[[Path], None], with_files: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(with_files, tmp_path / "r"))
    assert verify(copy).problems == []
    change(copy)
    sealed(copy)
    assert verify(copy).problems


def test_a_log_that_was_changed_names_the_line(copy: Path) -> None:
    text = (copy / log.NAME).read_text()
    (copy / log.NAME).write_text(
        text + json.dumps({"entry": "described", "target": {}, "cluster": {}}) + "\n"
    )
    sealed(copy)
    assert [line for line in verify(copy).problems if "is after the end of the run" in line]
