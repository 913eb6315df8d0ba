"""The page in Chromium at the widths of a screen, a phone and A4: nothing overlaps, and nothing is cut off."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.validation.replay import TR4858, VICTIM, run_command, settings
from tests.validation.report.test_record import HoldsTwice
from validation.report import html
from validation.report.record import read

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
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
  document.title = JSON.stringify(problems);
});
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not CHROMIUM:
        pytest.skip("there is no Chromium on this machine")
    directory = tmp_path_factory.mktemp("page") / "r"
    run_command([TR4858, VICTIM], settings(directory, HoldsTwice))
    return html.render(read(directory))


def problems(page: str, directory: Path, width: int, *, printed: bool = False) -> list[str]:
    if printed:  # what applies to paper applies to the screen
        page = page.replace("@media print", "@media all").replace("@media screen", "@media speech")
    path = directory / "page.html"
    path.write_text(page.replace("</head>", LOOK.replace("PRINTED", str(printed).lower()) + "</head>"))
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={directory / 'profile'}", f"--window-size={width},900"]
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, check=True, timeout=60
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title
    found: Any = json.loads(unescape(title[1]))
    return list(found)


@pytest.mark.parametrize(
    ("width", "printed"), [(1280, False), (500, False), (1017, True)], ids=["desktop", "phone", "A4"]
)
def test_nothing_overlaps_and_nothing_is_cut_off(
    page: str, width: int, printed: bool, tmp_path: Path
) -> None:
    assert problems(page, tmp_path, width, printed=printed) == []


def test_a_page_that_is_cut_off_is_noticed(page: str, tmp_path: Path) -> None:
    wide = page.replace("</main>", '<p style="width: 3000px">wide</p></main>')
    assert any("wide" in line for line in problems(wide, tmp_path, 1280))
