"""`orchestrator.devices.selectors`: Kubernetes' additions to CEL, and forbidden operations."""

from pathlib import Path

import pytest

from orchestrator.devices.model import Attribute, Capacity, Device, Features
from orchestrator.devices.quantity import parse_nano
from orchestrator.devices.selectors import DeviceView, SelectorFailed, Selectors

OWN = 'device.attributes["gpu.example.com"]'
CAPACITY = 'device.capacity["gpu.example.com"]'
DEVICE = Device(
    "gpu-0",
    attributes={
        "model": Attribute("string", ("V100",)),
        "index": Attribute("int", (3,)),
        "ecc": Attribute("bool", (True,)),
        "driverVersion": Attribute("version", ("550.163.1+build.2",)),
        "other.example.com/rack": Attribute("string", ("r1",)),
    },
    capacity={"memory": Capacity(parse_nano("32Gi"))},
    shareable=True,
)


def evaluate(expression: str, features: Features | None = None, device: Device = DEVICE) -> bool:
    selectors = Selectors(features or Features())
    return selectors.evaluate(selectors.compile(expression), DeviceView("gpu.example.com", device))


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        f'{OWN}.model == "V100" && {OWN}.index % 2 == 1 && {OWN}.ecc',
        'device.attributes["other.example.com"].rack.startsWith("r")',
        "device.allowMultipleAllocations",
        f'{CAPACITY}.memory == quantity("32768Mi")',
        f'{CAPACITY}.memory.compareTo(quantity("16Gi")) > 0',
        f'{CAPACITY}.memory.sub(quantity("1")).isLessThan(quantity("32Gi"))',
        f'{CAPACITY}.memory.add(1).isGreaterThan(quantity("32Gi"))',
        f"{CAPACITY}.memory.isInteger() && {CAPACITY}.memory.asInteger() == 34359738368",
        'isQuantity("1Gi") && !isQuantity("1K") && sign(quantity("-1")) == -1',
        'quantity("1500m").asApproximateFloat() == 1.5 && !quantity("1500m").isInteger()',
        f'{OWN}.driverVersion == semver("550.163.1")',
        f'{OWN}.driverVersion.isGreaterThan(semver("v550", true)) && {OWN}.driverVersion.major() == 550',
        'isSemver("1.2.3") && !isSemver("v1.2") && isSemver("v1.2", true)',
        f'cel.bind(own, {OWN}, own.model.lowerAscii().split("1")[0] == "v")',
        f'!has({OWN}.nvlink) && !("nvlink" in {OWN})',
        'device.attributes[?"none.example.com"].?x.orValue(1) == 1',
    ],
)
def test_expressions_that_kubernetes_evaluates_to_true_are_true(expression: str) -> None:
    assert evaluate(expression)


def test_a_domain_without_attributes_is_empty_but_not_in_the_device() -> None:
    assert not evaluate('has(device.attributes["none.example.com"].x)')
    assert not evaluate('"none.example.com" in device.attributes')
    assert evaluate('"other.example.com" in device.attributes')


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f"{OWN}.nvlink", "Key not found"),
        ('device.attributes["none.example.com"].x == 1', "Key not found"),
        (f"{OWN}.index", "not a bool"),
        (f"{OWN}.model > {OWN}.index", "No matching overloads"),
        (f"{CAPACITY}.memory > 3", "CEL runtime error"),
        (f'{CAPACITY}.memory.isLessThan(semver("1.2.3"))', "no such overload"),
        ('quantity("x").isInteger()', "is not a quantity"),
        ('semver("1.2").major() == 1', "is not a semantic version"),
        ('quantity("1500m").asInteger() == 1', "cannot convert"),
        ("noSuchName", "undeclared"),
        ("1 +", "compile error"),
        (f'"{"x" * 10240}" == ""', "longer than"),
        ('["a"].includes("a")', "No matching overloads"),
    ],
)
def test_a_failing_expression_says_why_in_one_line(expression: str, why: str) -> None:
    with pytest.raises(SelectorFailed, match=why) as failure:
        evaluate(expression)
    assert "\n" not in str(failure.value)


MANY = ",".join(map(str, range(20)))


def test_evaluations_leave_nothing_in_memory() -> None:
    selectors, view = Selectors(Features()), DeviceView("gpu.example.com", DEVICE)
    text = f'[{MANY}].all(a, [{MANY}].map(b, "{"x" * 400}" + device.driver).size() > a)'
    program = selectors.compile(text)
    for _ in range(20):
        selectors.evaluate(program, view)
    before = resident_kib()
    for _ in range(300):
        assert selectors.evaluate(program, view)
    assert resident_kib() - before < 4 * 1024


def resident_kib() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def nested(text: str, closing: str, count: int, inner: str = "1") -> str:
    return text * count + inner + closing * count


@pytest.mark.parametrize(
    "expression",
    [
        nested("(", ")", 5000),
        nested("[", "]", 5000),
        nested("{1:", "}", 2000),
        nested("size(", ")", 1600),
        nested("([", "])", 2500),
        nested("[1].all(x, ", ")", 800, "true"),
        nested("cel.bind(x, 1, ", ")", 600, "true"),
        "device" + ".a" * 4500,
        "device" + "[1]" * 3000,
        "device" + ".?a" * 3000,
        "1" + "+1" * 4500,
        "true" + "?true" * 1200 + ":true" * 1200,
        "'a'" + ".trim()" * 1400,
        "!" * 9001 + "1",
        "-" * 9001 + "true",
        "\x00" * 5000,
        "'" + "\\" * 5000,
    ],
)
def test_a_deep_expression_ends_no_process(expression: str) -> None:
    with pytest.raises(SelectorFailed, match="CEL") as failure:
        evaluate(expression)
    assert len(str(failure.value)) < 400


def test_usual_expressions_are_far_from_too_large() -> None:
    uuids = ", ".join(f"'GPU-{number:036x}'" for number in range(200))
    assert not evaluate(f"cel.bind(own, {OWN}, has(own.model) && own.model in [{uuids}])")
    assert evaluate(f"{OWN}.model.replace('V', 'v').replace('1', '0').replace('0', 'o') == 'vooo'")


def test_lists_of_values_are_read_only_where_they_are_on() -> None:
    device = Device("gpu-0", attributes={"modes": Attribute("string", ("mig", "graphics"), is_list=True)})
    with pytest.raises(SelectorFailed, match="attribute modes: unsupported"):
        evaluate("true", device=device)
    lists = Features(list_attributes=True)
    assert evaluate(
        f'{OWN}.modes.includes("mig") && {OWN}.modes.exists(mode, mode == "graphics")', lists, device
    )
    assert not evaluate(f'{OWN}.modes.includes("compute")', lists, device)


def test_without_consumable_capacity_a_device_does_not_say_whether_it_can_be_shared() -> None:
    with pytest.raises(SelectorFailed):
        evaluate("device.allowMultipleAllocations", Features(consumable_capacity=False))
