"""A judge of its own, written from the documents: it agrees with ours on every verdict of every bundle."""

import ast
import sys
from pathlib import Path

import pytest

from tests.validation.fake_target import (
    FakeTarget,
    HidesEvictions,
    NeverStarts,
    SwapsDevices,
    WitnessedTarget,
)
from tests.validation.replay import (
    GANG,
    SECOND_JUDGE,
    TR4858,
    VICTIM,
    assert_second_judge_agrees,
    run_command,
    settings,
)
from tests.validation.report.test_record import EvictsTheWrongOne, HoldsTwice
from tests.validation.test_not_fooled import Interrupted, LosesAGang, NeverBinds, NothingThere, waivers
from validation.scenario.loader import SHIPPED

INTERACTIVE = SHIPPED / "muster" / "interactive.scenario.yaml"
FRACTIONS = SHIPPED / "muster" / "fractions.scenario.yaml"
BUNDLES = [
    *((FakeTarget, [path]) for path in (TR4858, GANG, VICTIM, INTERACTIVE, FRACTIONS)),
    *((NeverBinds, [path]) for path in (TR4858, GANG, VICTIM)),
    *((NothingThere, [path]) for path in (GANG, VICTIM)),
    *((LosesAGang, [path]) for path in (GANG,)),
    *((Interrupted, [path]) for path in (TR4858, VICTIM)),
    *((HoldsTwice, [path]) for path in (TR4858, GANG, VICTIM, INTERACTIVE, FRACTIONS)),
    *((EvictsTheWrongOne, [path]) for path in (VICTIM,)),
    (FakeTarget, [GANG, VICTIM, INTERACTIVE]),
    *((liar, [VICTIM]) for liar in (WitnessedTarget, SwapsDevices, NeverStarts, HidesEvictions)),
]


def test_the_second_judge_imports_nothing_of_ours() -> None:
    tree = ast.parse(SECOND_JUDGE.read_text())
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names
    assert len(BUNDLES) == 24


@pytest.mark.parametrize(
    ("target", "paths"), BUNDLES, ids=[f"{target.__name__}-{len(p)}-{p[0].stem}" for target, p in BUNDLES]
)
def test_two_judges_agree_on_every_verdict(
    target: type[FakeTarget], paths: list[Path], tmp_path: Path
) -> None:
    accepted = waivers(tmp_path, "muster-victim/reclaim")
    run_command(paths, settings(tmp_path / "r", target, waivers=accepted))
    assert_second_judge_agrees(tmp_path / "r")
