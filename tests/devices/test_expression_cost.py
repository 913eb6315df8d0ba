"""`orchestrator.devices.expression_cost` on syntax trees of the library."""

import pytest

from orchestrator.devices.expression_cost import MAX_COST_NS
from orchestrator.devices.model import Features
from orchestrator.devices.selectors import MAX_LENGTH, SelectorFailed, Selectors

OWN = 'device.attributes["gpu.example.com"]'
SELECTORS = Selectors(Features(list_attributes=True))


def nested(count: int, levels: int, body: str) -> str:
    numbers = ",".join(map(str, range(count)))
    for level in range(levels):
        body = f"[{numbers}].all(n{level}, {body})"
    return body


def bound(first: str, step: str, levels: int, body: str) -> str:
    names = [f"cel.bind(n0, {first}, "]
    names += [f"cel.bind(n{level}, {step.replace('@', f'n{level - 1}')}, " for level in range(1, levels)]
    return "".join(names) + body.replace("@", f"n{levels - 1}") + ")" * levels


EXPENSIVE = {
    "three loops": nested(20, 3, "n0 + n1 + n2 >= 0"),
    "a long string in each round": nested(50, 2, f'("{"x" * 500}" + device.driver).size() > 0'),
    "loops over attributes": f"{OWN}.all(a, {OWN}.all(b, {OWN}.all(c, a + b != c)))",
    "loops over a bound list": bound(
        "[1,2,3,4,5,6,7,8,9,10]", "@.map(x, x + 1)", 9, nested(20, 3, "n8 == [1]")
    ),
    "quantities in a loop": nested(30, 2, 'quantity("1Gi").add(1).isGreaterThan(quantity("1Mi"))'),
    "versions in a loop": nested(30, 2, 'semver("1.2.3").isLessThan(semver("1.2.4"))'),
    "a regular expression in a loop": nested(
        100, 1, f'{OWN}.model.matches("(a|aa|b|c)*[a-z]+(x|y){{1,50}}$")'
    ),
    "classes of characters, repeated": f'{OWN}.model.matches("[\\\\pL\\\\pN]{{900}}")',
    "repetitions of repetitions": f'{OWN}.model.matches("((.{{10}}){{10}}){{10}}")',
    "a long text for a long pattern": f'"{"a" * 4000}".matches("{"a*" * 2000}b")',
    "a long search in a loop": nested(120, 1, f'"{"a" * 900}".replace("{"a" * 400}b", "") == ""'),
    "a map for each element": nested(
        300, 1, "{" + ",".join(f"{n}: {n}" for n in range(300)) + "}.size() > 0"
    ),
    "a list that is copied": f"[{','.join('1' * 1 for _ in range(2000))}].map(x, x).size() > 0",
    "formats": nested(40, 1, '"%s%s%s%s".format([device, device, device, device]).size() > 0'),
}

LARGE = {
    "doubled text": bound(f'"{"a" * 50}"', "@ + @", 25, "@.size() > 0"),
    "doubled lists": bound("[1, 2]", "[@, @]", 25, "@ == @"),
    "doubled maps": bound("{1: 1}", "{1: @, 2: @}", 25, "@ == @"),
    "maps of maps as keys": bound("{1: 1}", "{@: @}", 25, "true"),
    "lists of lists": bound("[1,2,3,4,5,6,7,8,9,10]", "@.map(x, @)", 9, "@.size() > 0"),
    "text of text": f'"{"a" * 1000}".replace("a", "{"b" * 4000}").replace("b", "{"c" * 4000}").size() > 1',
    "joined text": f'"{"a," * 2000}".split(",").map(x, x + "b").join(",").size() > 0',
    "text by format": bound('"a"', '"%s%s%s%s%s%s".format([@, @, @, @, @, @])', 9, "@.size() > 0"),
    "quoted text": bound('"\\""', "strings.quote(@ + @)", 9, "@.size() > 0"),
    "the result is large": bound("[1, 2]", "[@, @]", 25, "@"),
}


@pytest.mark.parametrize("expression", EXPENSIVE.values(), ids=EXPENSIVE.keys())
def test_an_expression_that_may_take_long_is_not_evaluated(expression: str) -> None:
    assert len(expression) <= MAX_LENGTH
    with pytest.raises(SelectorFailed, match=r"longer than the maximum of 10 ms|too large"):
        SELECTORS.compile(expression)


@pytest.mark.parametrize("expression", LARGE.values(), ids=LARGE.keys())
def test_an_expression_that_may_fill_the_memory_is_not_evaluated(expression: str) -> None:
    with pytest.raises(SelectorFailed, match=r"too large|longer than the maximum of 10 ms"):
        SELECTORS.compile(expression)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("noSuchName", "undeclared reference to 'noSuchName'"),
        ("[1].map(x, x).size() == 1 && x == 1", "undeclared reference to 'x'"),
        ("[1, 2].map(x, __result__ + __result__).size() == 2", "undeclared reference to '__result__'"),
        ("lists.range(1000000).size() > 0", "undeclared reference to 'lists'"),
        ("sets.contains([1], [1])", "undeclared reference to 'sets'"),
        ("cel.block([1], true)", "undeclared reference to 'cel'"),
        ('timestamp("2026-01-01T00:00:00Z").getHours("file:/dev/zero") == 0', "undeclared reference"),
        ('google.protobuf.Any{type_url: "x"} == 1', "a message of type 'google.protobuf.Any'"),
        (f'{OWN}.model.matches("[a-z]" + {OWN}.model)', "must be a literal string"),
        (f"[r'a{{1000}}'].all(p, {OWN}.model.matches(p))", "must be a literal string"),
        (f'{OWN}.model.matches("a{{{"9" * 5000}}}")', "longer than the maximum"),
    ],
)
def test_an_expression_without_a_known_cost_is_refused_by_name(expression: str, why: str) -> None:
    with pytest.raises(SelectorFailed, match=why):
        SELECTORS.compile(expression)


UUIDS = ", ".join(f"'GPU-{number:036x}'" for number in range(200))


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        f'{OWN}.model.matches("^NVIDIA (A100|H100)[- ].*$")',
        f'{OWN}.model.lowerAscii().contains("a100") && {OWN}.uuid in [{UUIDS}]',
        f'{OWN}.runtimes.exists(x, x.isGreaterThan(semver("12.0.0"))) && {OWN}.nodes.exists(x, x > 1)',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
        f'cel.bind(own, {OWN}, has(own.a) && own.a.replace("a", "b").split("-").map(p, p).join("_") == "x")',
        "device.attributes.exists(domain, device.attributes[domain].exists(name, name == 'model'))",
    ],
)
def test_ordinary_expressions_are_far_below_the_bound(expression: str) -> None:
    assert SELECTORS.compile(expression).cost.max_ns < MAX_COST_NS // 2


def test_the_cost_on_a_device_follows_its_longest_list() -> None:
    cost = SELECTORS.compile(f"{OWN}.a.all(x, {OWN}.a.all(y, x != y))").cost
    exact = [cost.min_ns, *(cost.on(length) for length in (2, 8, 63)), cost.max_ns]
    assert exact == sorted(set(exact))
    assert cost.on(0) == cost.on(1) == cost.min_ns
    assert cost.on(64) == cost.on(1000) == cost.max_ns


def test_the_cost_of_a_loop_is_that_of_its_rounds() -> None:
    ten, twenty = (SELECTORS.compile(nested(count, 2, "n0 < n1")).cost.min_ns for count in (10, 20))
    assert 3.3 < twenty / ten < 4
