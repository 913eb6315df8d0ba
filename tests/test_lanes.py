"""`make test` runs every lane of tox.ini once, and the lane of a mark runs every test with this mark."""

import re
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARKED_FOR_GPU = re.compile(r"pytest\.mark\.gpu\b")
RARE = re.compile(r"(?m)^.*\bmark\.rare\b.*$")
RARE_OF_THE_WEB = {
    "test_states_of_the_paper.py": ("section", "marks="),  # two states are in the lane
    "test_storage_in_a_lab.py": ("@pytest.mark.rare", "the toolkit"),  # five tests are in the lane
}
"""Words of the only line with the mark `rare`, for each file that has such a line."""
MARKED_FOR_INSTALLER = re.compile(r"pytest\.mark\.installer\b")


def lanes(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def test_every_lane_is_run_by_make_test() -> None:
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    commands = re.findall(r"tox run-parallel (.*)", (ROOT / "Makefile").read_text())
    assert commands == ["--parallel 2"]  # no selection of lanes: all of env_list run
    described = {
        section.removeprefix("testenv:")
        for section in config.sections()
        if section.startswith("testenv:") and "by hand" not in config[section]["description"]
    }
    assert {*lanes(config["tox"]["env_list"])} == described | {"py311"}


def test_guests_have_ended_before_the_real_nodes_of_the_lane_beside_them_begin() -> None:
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    order = lanes(config["tox"]["env_list"])
    assert order[:2] == ["lab", "installer"]
    commands = config["testenv:lab"]["commands"]
    assert commands.index("not real_nodes") < commands.index("and real_nodes")


def test_the_installers_tests_are_in_the_folder_that_its_lane_collects() -> None:
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    assert config["testenv:installer"]["commands"].endswith("{posargs:tests/deployment}")
    marked = [
        file
        for file in (ROOT / "tests").rglob("test_*.py")
        if MARKED_FOR_INSTALLER.search(file.read_text("utf-8"))
    ]
    assert marked
    assert {file.relative_to(ROOT).parts[:2] for file in marked} == {("tests", "deployment")}


def test_tests_that_need_a_gpu_are_in_the_folder_of_their_lane_and_in_no_other_lane() -> None:
    marked = {
        file for file in (ROOT / "tests").rglob("test_*.py") if MARKED_FOR_GPU.search(file.read_text("utf-8"))
    }
    assert marked == set((ROOT / "tests" / "gpu").rglob("test_*.py"))
    assert marked
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", "test-gpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pytest -m gpu tests/gpu\n" in printed
    everything = [
        line for line in (ROOT / "tox.ini").read_text().splitlines() if "--ignore tests/upstream" in line
    ]
    assert everything
    assert all('not gpu"' in line for line in everything)


def test_files_that_people_look_at_and_their_data_are_tested_with_every_commit() -> None:
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", "test-web"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (line,) = [line for line in printed.splitlines() if "pytest" in line]
    _, _, words = line.partition("pytest ")
    paths = [ROOT / word for word in words.split()]
    files = [file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    assert {"musterweb", "chart", "cli", "control", "musterlab"} <= {file.parent.name for file in files}
    rare = {file.name: lines for file in files if (lines := RARE.findall(file.read_text("utf-8")))}
    assert rare.keys() == RARE_OF_THE_WEB.keys()
    for name, expected in RARE_OF_THE_WEB.items():
        (found,) = rare[name]
        assert all(word in found for word in expected), (name, found)


def test_a_test_file_names_its_marks_itself() -> None:
    """The conftest leaves out the files whose text lacks the mark of a lane; a mark from elsewhere would be lost."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"][
        "markers"
    ]
    names = "|".join(line.partition(":")[0] for line in declared)
    elsewhere = re.compile(rf"\bmark\.({names})\b|add_marker")
    others = [file for file in (ROOT / "tests").rglob("*.py") if not file.name.startswith("test_")]
    assert [str(file) for file in others if elsewhere.search(file.read_text("utf-8"))] == []
    assert elsewhere.search("pytestmark = pytest.mark.lab")
