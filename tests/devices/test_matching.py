"""`orchestrator.devices.matching`: remembered results, and the maximum work for a project."""

from collections.abc import Sequence

import pytest

from orchestrator.devices.inventory import Inventory
from orchestrator.devices.matching import MAX_CREDIT, REFILL, Matches, SelectorWorkExceeded
from orchestrator.devices.model import Features
from orchestrator.devices.pools import Candidate
from tests.devices.builders import NODE, device, resource_slice


def candidates(count: int) -> Sequence[Candidate]:
    inventory = Inventory(Features())
    inventory.replace([resource_slice(*(device(f"gpu-{index}") for index in range(count)))])
    return inventory.on_node(NODE).candidates


def expensive(number: int) -> str:
    numbers = ",".join(str(number * 100 + index) for index in range(15))
    return each(f"[{numbers}].all(a, [{numbers}].all(b, [{numbers}].all(c, a + b + c >= 0)))")


def each(expression: str) -> str:
    """Return an expression whose result can differ for each device."""
    return f"cel.bind(own, device, own.driver != '') && {expression}"


def evaluated(matches: Matches, listed: Sequence[Candidate], expressions: Sequence[str], project: str) -> int:
    """Return the number of evaluations until the project reached its maximum."""
    before = matches.evaluated
    try:
        for candidate in listed:
            assert matches.accepts(candidate, expressions, project)
    except SelectorWorkExceeded:
        pass
    return matches.evaluated - before


def test_an_expression_is_evaluated_once_for_each_device_of_all_projects() -> None:
    matches, listed = Matches(Features()), candidates(4)
    assert evaluated(matches, listed, [each("1 == 1"), each("2 == 2")], "team-a") == 8
    assert evaluated(matches, listed, [each("2 == 2"), each("1 == 1")], "team-b") == 0


LIKE = "device.attributes['gpu.example.com']"


@pytest.mark.parametrize(
    ("expression", "evaluations"),
    [
        ("device.driver == 'gpu.example.com'", 1),
        ("1 == 1", 1),
        (f"has({LIKE}.rack) ? {LIKE}.rack == 1 : true", 2),
        (f"{LIKE}['index'] >= 0", 6),
        (f"has({LIKE}.flag) && {LIKE}.flag == true || true", 3),
        ("has(device.attributes['other'].rack) || 'other' in device.attributes || true", 6),
        ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1'))", 2),
        (f"{LIKE}.all(name, name != '')", 6),
        ("device.attributes.exists(device, device == 'gpu.example.com')", 6),
        (f"{LIKE}[device.driver == '' ? 'rack' : 'index'] >= 0", 6),
    ],
)
def test_devices_with_equal_values_of_the_attributes_that_are_read_share_an_evaluation(
    expression: str, evaluations: int
) -> None:
    matches = Matches(Features())
    inventory = Inventory(Features())
    attributes: list[dict[str, int | bool]] = [{}, {"rack": 1}, {"flag": True}, {"flag": 1}, {}, {"rack": 1}]
    devices = [
        device(f"gpu-{index}", memory="1Gi" if index % 2 else "2Gi", attributes={"index": index, **more})
        for index, more in enumerate(attributes)
    ]
    inventory.replace([resource_slice(*devices)])
    shared = [matches.accepts(each, [expression], "team-a") for each in inventory.on_node(NODE).candidates]
    alone = [
        Matches(Features()).accepts(each, [expression], "team-a")
        for each in inventory.on_node(NODE).candidates
    ]
    assert shared == alone
    assert matches.evaluated == evaluations


def test_the_expression_that_was_used_least_recently_is_forgotten_first() -> None:
    matches, listed = Matches(Features(), max_bytes=100_000), candidates(1)
    used = "0 == 0"
    for number in range(1, 200):
        evaluated(matches, listed, [used, f"{number} == {number}"], f"team-{number}")
    assert matches.evaluated == 200, "the expression that each expressions for was forgotten"
    assert len(matches._known) <= 5
    assert matches._size <= 100_000


def test_outcomes_count_for_the_size_that_is_remembered() -> None:
    matches, listed = Matches(Features(), max_bytes=200_000), candidates(500)
    for number in range(20):
        assert evaluated(matches, listed, [each(f"{number} == {number}")], f"team-{number}") == 500
    assert matches._size == sum(known.size for known in matches._known.values()) <= 200_000


def test_a_project_has_a_credit_in_each_decision_and_continues_in_the_next() -> None:
    matches, listed = Matches(Features()), candidates(8)
    expressions = [expensive(number) for number in range(40)]
    matches.begin()
    first = evaluated(matches, listed, expressions, "team-a")
    assert 0 < first < 8 * 40
    assert MAX_CREDIT <= matches.work < MAX_CREDIT + 20_000
    assert evaluated(matches, listed, expressions, "team-a") == 0
    assert evaluated(matches, listed, [each("1 == 1")], "team-b") == 8, "the other project pays for it"
    total, decisions = first, 1
    while total < 8 * 40:
        before = matches.work
        matches.begin()
        total += evaluated(matches, listed, expressions, "team-a")
        assert matches.work - before < REFILL + 20_000
        decisions += 1
    assert decisions < 40
    matches.begin()
    assert evaluated(matches, listed, expressions, "team-a") == 0


def test_projects_that_used_up_their_credit_share_the_refill() -> None:
    matches, listed = Matches(Features()), candidates(8)
    projects = [f"team-{number}" for number in range(10)]
    expressions = {
        project: [expensive(100 * number + more) for more in range(40)]
        for number, project in enumerate(projects)
    }
    for _ in range(3):
        before = matches.work
        matches.begin()
        for project in projects:
            evaluated(matches, listed, expressions[project], project)
    assert matches.work - before < 3 * REFILL


def test_credit_comes_back() -> None:
    matches, listed = Matches(Features()), candidates(8)
    matches.begin()
    evaluated(matches, listed, [expensive(number) for number in range(40)], "team-a")
    for _ in range(MAX_CREDIT // REFILL + 2):
        matches.begin()
    before = matches.work
    evaluated(matches, listed, [expensive(number) for number in range(40, 80)], "team-a")
    assert matches.work - before >= MAX_CREDIT


@pytest.mark.parametrize("expression", ["x" * 20_000, "1 +", "noSuchName", "[1].all(x, " * 40])
def test_an_expression_that_does_not_compile_is_compiled_once(expression: str) -> None:
    matches, listed = Matches(Features()), candidates(8)
    for candidate in listed:
        with pytest.raises(ValueError, match="CEL compile error"):
            matches.accepts(candidate, [expression], "team-a")
    work = matches.work
    with pytest.raises(ValueError, match="CEL compile error"):
        matches.accepts(listed[0], [expression], "team-a")
    assert matches.work == work
