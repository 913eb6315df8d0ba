"""`make test` runs every lane of tox.ini but those that are for by hand, and a lane misses no test of its mark."""

import re
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARKED_FOR_INSTALLER = re.compile(r"pytest\.mark\.installer\b")


def tox_settings() -> ConfigParser:
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    return config


def test_every_lane_is_run_by_make_test() -> None:
    config = tox_settings()
    begun = [name.strip() for name in config["tox"]["env_list"].split(",")]
    described = {name.removeprefix("testenv:") for name in config.sections() if name.startswith("testenv:")}
    by_hand = {name for name in described if "by hand" in config[f"testenv:{name}"]["description"]}
    assert " tox run-parallel --parallel 2\n" in (ROOT / "Makefile").read_text()
    assert sorted(begun) == sorted(described - by_hand | {"py311"})
    assert begun[0] == "lab", "the longest lane begins last, and everything has to wait for it"


def test_the_installers_tests_are_in_the_folder_that_its_lane_collects() -> None:
    assert tox_settings()["testenv:installer"]["commands"].endswith("{posargs:tests/deployment}")
    marked = [
        file
        for file in (ROOT / "tests").rglob("test_*.py")
        if MARKED_FOR_INSTALLER.search(file.read_text("utf-8"))
    ]
    assert marked
    assert {file.relative_to(ROOT).parts[:2] for file in marked} == {("tests", "deployment")}
