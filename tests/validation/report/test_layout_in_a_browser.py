"""The page in Chromium at the widths of a screen, a phone and A4: nothing overlaps, and nothing is cut off."""

import json
import re
import shutil
import subprocess
import time
from functools import partial
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from tests.validation.host_doubles import FakeHosts
from tests.validation.host_judgements import NAMES
from tests.validation.replay import run_command, settings
from tests.validation.report.full_record import write_full_record
from tests.validation.report.records import three_steps
from tests.validation.report.test_record import HoldsTwice
from validation.catalogue.catalogue import load_catalogue
from validation.judge.waivers import Waiver
from validation.report import html
from validation.report.record import GpuIdentity, Identity, NodeIdentity, read
from validation.scenario.loader import SUITES

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
NARROWEST = 500
"""Minimum width of a Chromium window in pixels. For the width of a phone, the page is in a frame."""
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=2000",
)  # fmt: skip
LOOK = """<script>
addEventListener("load", () => {
  const problems = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) problems.push(`the page is ${wide} wide, the window ${innerWidth}`);
  const name = (element) => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`;
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const place = (element) => element.getBoundingClientRect();
  const apart = (elements) => elements.forEach((one, number) => elements.slice(number + 1).forEach((other) => {
    if (over(place(one), place(other))) problems.push(`${name(one)} / ${name(other)}`);
  }));
  document.querySelectorAll("tr").forEach((row) => apart([...row.children]));
  document.querySelectorAll("svg").forEach((chart) => apart([...chart.querySelectorAll("text")]));
  apart([...document.querySelectorAll(".facts > div")]);
  apart([...document.querySelectorAll("main > *")]);
  document.querySelectorAll("td, th, .chip, .banner, .facts div, pre").forEach((box) => {
    const inline = getComputedStyle(box).display == "inline";
    if (box.scrollWidth > box.clientWidth + 1 && !inline) problems.push(`cut off: ${name(box)}`);
  });
  document.querySelectorAll(PRINTED ? ".scroll" : "nothing").forEach((box) => {
    if (box.scrollWidth > box.clientWidth + 1) problems.push(`wider than the paper: ${name(box)}`);
  });
  document.querySelectorAll("svg text").forEach((label) => {
    const size = parseFloat(getComputedStyle(label).fontSize) * label.getScreenCTM().d;
    if (size && size < 7) problems.push(`too small to be read: ${name(label)}`);
  });
  top.document.title = JSON.stringify(problems);
});
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not CHROMIUM:
        pytest.skip("there is no Chromium on this machine")
    """The page of a run of all scenarios and the hosts, in which every verdict is there and most rows have a reason."""
    directory = tmp_path_factory.mktemp("page") / "r"
    open_hosts = partial(FakeHosts, names=NAMES)
    run_command(list(SUITES), settings(directory, HoldsTwice, profile="current", open_hosts=open_hosts))
    report = read(directory)
    catalogue = load_catalogue()
    assert [entry.id for entry in report.requirements] == [entry.id for entry in catalogue.requirements]
    verdicts = {entry.verdict for entry in report.requirements}
    assert verdicts == {"PASS", "FAIL", "BLOCKED", "INCONCLUSIVE", "NOT_APPLICABLE"}
    return html.render(report)


def problems(page: str, directory: Path, width: int, *, printed: bool = False) -> list[str]:
    if printed:  # the rules for paper apply to the screen too
        page = page.replace("@media print", "@media all").replace("@media screen", "@media speech")
    path = directory / "page.html"
    page = page.replace("</head>", LOOK.replace("PRINTED", str(printed).lower()) + "</head>")
    if width < NARROWEST:
        page = (
            f'<title></title><body style="margin: 0"><iframe style="border: 0; width: {width}px; height: 900px" '
            f'srcdoc="{escape(page)}"></iframe>'
        )
    path.write_text(page)
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={directory / 'profile'}", f"--window-size={width},900"]
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, check=True, timeout=60
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title
    found: Any = json.loads(unescape(title[1]))
    return list(found)


@pytest.mark.parametrize(
    ("width", "printed"), [(1400, False), (400, False), (1017, True)], ids=["desktop", "phone", "A4"]
)
def test_nothing_overlaps_and_nothing_is_cut_off(
    page: str, width: int, printed: bool, tmp_path: Path
) -> None:
    assert problems(page, tmp_path, width, printed=printed) == []


def test_the_certificate_of_eight_hosts_with_waivers_is_one_page(tmp_path: Path) -> None:
    if not CHROMIUM:
        pytest.skip("there is no Chromium on this machine")
    report = three_steps()
    uid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    nodes = [
        NodeIdentity(
            f"dgx-{n}", uid, uid, [GpuIdentity(f"GPU-{n}{g}", f"16511230100{n}{g}") for g in range(8)]
        )
        for n in range(1, 9)
    ]
    report.identity = Identity("ab" * 32, uid, "cd" * 32, nodes)
    report.cluster = {"kubernetes": "v1.36.3", "gpus": 64}
    report.summary = report.headline = "a long sentence " * 40
    report.scope.deviations = ["the operator is not the installed one: changed through the environment"] * 5
    report.scope.waivers = [
        Waiver(
            "hosts/layer/equality",
            "ada@example.com",
            "the vBIOS is updated " * 9,
            "2026-12-31",
            f"vBIOS 9{n}",
            "n1",
        )
        for n in range(9)
    ]
    page = html.render(report)
    assert pages_of(certificate_of(page), tmp_path) == 1


def certificate_of(page: str) -> str:
    return page[: page.index("<nav")].replace("break-after: page;", "") + "</main></body></html>"


def pages_of(page: str, directory: Path) -> int:
    """Return the number of the page's sheets on paper."""
    (directory / "page.html").write_text(page)
    command = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={directory / 'profile'}",
        f"--print-to-pdf={directory / 'page.pdf'}",
    ]
    subprocess.run(
        [*command, (directory / "page.html").as_uri()], capture_output=True, check=True, timeout=60
    )
    return len(re.findall(rb"/Type\s*/Page\b", (directory / "page.pdf").read_bytes()))


@pytest.mark.rare
def test_a_full_record_of_eight_hosts_is_rendered_soon_and_short_on_paper(tmp_path: Path) -> None:
    report = write_full_record(tmp_path / "r")
    assert len(report.steps) > 250
    assert [len(row.gpus) for row in report.hosts or ()] == [8] * 8
    begin = time.process_time()
    page = html.render(report)
    assert time.process_time() - begin < 5
    if not CHROMIUM:
        pytest.skip("there is no Chromium on this machine")
    assert pages_of(certificate_of(page), tmp_path) == 1
    before_the_appendix = page[: page.index('<h2 id="chart">')] + "</main></body></html>"
    assert pages_of(before_the_appendix, tmp_path) <= 25


@pytest.mark.parametrize(
    ("flaw", "place", "width"),
    [
        ("the page is", ("</main>", '<p style="width: 3000px">wide</p></main>'), 400),
        ("H2 Appendix: errata", ('<h2 id="errata">', '<h2 id="errata" style="margin-top: -60px">'), 1400),
        ("cut off: TD", ("<td>", '<td style="overflow: hidden; white-space: nowrap; max-width: 20px">'), 400),
        ("too small to be read", ("svg { min-width: 860px; }", ""), 400),
    ],
    ids=["wide", "over", "cut off", "small"],
)
def test_an_error_of_a_page_is_noticed(
    page: str, flaw: str, place: tuple[str, str], width: int, tmp_path: Path
) -> None:
    assert place[0] in page
    assert any(flaw in line for line in problems(page.replace(*place), tmp_path, width))
