"""`make test` runs every lane of tox.ini once."""

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lanes(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def test_every_lane_is_run_by_make_test() -> None:
    config = ConfigParser()
    config.read(ROOT / "tox.ini")
    lines = [line for line in config["tox"]["labels"].splitlines() if "=" in line]
    labels = {name.strip(): lanes(value) for name, _, value in (line.partition("=") for line in lines)}
    makefile = (ROOT / "Makefile").read_text()
    assert all(f" -m {label}\n" in makefile for label in labels)
    assert sorted(name for names in labels.values() for name in names) == sorted(
        lanes(config["tox"]["env_list"])
    )
