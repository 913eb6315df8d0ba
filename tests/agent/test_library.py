"""The library on the node: it is replaced as a whole, the file that names it stands beside it,
an unchanged file stays.
"""

from pathlib import Path

import pytest

from orchestrator.agent.library import LIBRARY, put
from orchestrator.errors import ConfigurationError


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / LIBRARY.name
    path.write_bytes(b"\x7fELF one")
    return path


@pytest.fixture
def node(tmp_path: Path) -> Path:
    folder = tmp_path / "node"
    folder.mkdir()
    return folder


def test_both_files_are_there_and_nothing_else(library: Path, node: Path) -> None:
    (node / ".unfinished-abc").write_text("of one that was killed")
    put(node, library)
    assert {path.name for path in node.iterdir()} == {LIBRARY.name, "ld.so.preload"}
    assert (node / LIBRARY.name).read_bytes() == b"\x7fELF one"
    assert (node / "ld.so.preload").read_text() == f"{LIBRARY}\n"
    assert {path.stat().st_mode & 0o777 for path in node.iterdir()} == {0o755, 0o644}


def test_a_new_library_is_another_file_and_the_same_one_is_kept(library: Path, node: Path) -> None:
    put(node, library)
    with (node / LIBRARY.name).open("rb") as used:
        put(node, library)
        before = (node / LIBRARY.name).stat().st_ino
        library.write_bytes(b"\x7fELF two")
        put(node, library)
        assert used.read() == b"\x7fELF one"
    assert (node / LIBRARY.name).read_bytes() == b"\x7fELF two"
    assert before != (node / LIBRARY.name).stat().st_ino


def test_a_missing_part_is_reported(library: Path, node: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        put(node, tmp_path / "none")
    with pytest.raises(ConfigurationError, match="cannot be put"):
        put(tmp_path / "nowhere", library)
