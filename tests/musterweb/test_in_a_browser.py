"""The pages in headless Chromium: live, by keyboard, at three widths, in both themes, by axe-core's rules."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.musterweb.chromium import Tab, browsing, program
from tests.musterweb.conftest import add_job

if TYPE_CHECKING:
    from tests.musterweb.conftest import Site

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(program() is None, reason="Debian's package chromium is not installed"),
]

AXE: Final = "axe-core-4.14.1.tgz"
AXE_SHA512: Final = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
PAGES: Final = (
    "/", "/jobs", "/nodes", "/projects", "/analytics", "/reports", "/reports/first", "/cluster",
    "/new-cluster?name=east", "/projects/team-a", "/projects/new", "/jobs/team-a/a-train",
    "/jobs/team-a/a-waits/explain", "/jobs/team-a/a-train/logs", "/jobs/team-a/missing",
)  # fmt: skip
IN_BOTH_THEMES: Final = ("/", "/analytics", "/projects/team-a")
FILLED: Final = (
    ("ada", "", "/", ".figures"),
    ("vic", "team-a", "/", ".figures"),
    ("ada", "", "/analytics", ".charts"),
)
ROW_EDGES: Final = """(selector) => {
  const rows = new Map(), all = document.querySelector(selector);
  for (const one of all.children) {
    const { top, right } = one.getBoundingClientRect();
    rows.set(top, Math.max(rows.get(top) || 0, right));
  }
  return [all.getBoundingClientRect().right, ...rows.values()];
}"""
"""Returns the right edge of the element, and that of each row of elements in it."""
SERIOUS: Final = "violations.filter(each => each.impact === 'serious' || each.impact === 'critical')"


def axe() -> str:
    """Return the script of axe-core from the npm registry."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    file = cache / "muster" / "web" / AXE
    if not file.exists():
        pytest.skip(f"{file} is not there: npm pack axe-core@4.14.1 in that directory")
    content = file.read_bytes()
    assert base64.b64encode(hashlib.sha512(content).digest()).decode() == AXE_SHA512
    with tarfile.open(file) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


async def sign_in(tab: Tab, site: Site, name: str, project: str = "") -> None:
    await tab.go(f"http://127.0.0.1:{site.port}/sign-in")
    await tab.js(f"document.getElementById('token').value = 'token-of-{name}'")
    await tab.js(f"document.getElementById('project').value = '{project}'")
    await tab.submit("button")


async def test_a_page_follows_the_cluster_and_says_when_it_cannot(site: Site, tmp_path: Path) -> None:
    async with browsing(tmp_path) as tab:
        await sign_in(tab, site, "sue")
        await tab.until("document.getElementById('state').dataset.live === 'yes'")
        add_job(site.server, "muster-team-a", "a-new", gpus=1, why="no GPU is free")
        await tab.until("document.body.innerText.includes('no GPU is free')")
        assert await tab.js("[...document.querySelectorAll('.figures dd')].at(-1).innerText") == "2"
        site.people.is_down = True
        await tab.until("document.getElementById('word').innerText.startsWith('Not current: ')")
        assert await tab.js("document.body.innerText.includes('a-new')")
        assert await tab.js("'stale' in document.body.dataset")
        await tab.look(width=375, theme="light")  # the job's reason has no spaces at which a line could break
        assert await tab.js("document.documentElement.scrollWidth") <= 375
        site.people.is_down = False
        await tab.until("document.getElementById('word').innerText === 'Current'")
        assert not await tab.js("'stale' in document.body.dataset")
        site.people.by_token["token-of-sue"].is_valid = False
        await tab.until("document.getElementById('word').innerText.includes('no longer accepts your token')")
        assert not await tab.js("document.getElementById('body').innerText.includes('a-new')")
        assert tab.problems == []


async def test_it_works_by_keyboard_and_keeps_the_place_while_it_updates_itself(
    site: Site, tmp_path: Path
) -> None:
    async with browsing(tmp_path) as tab:
        await tab.go(f"http://127.0.0.1:{site.port}/")
        await tab.js("document.getElementById('token').focus()")
        await tab.call("Input.insertText", text="token-of-ada")
        await tab.press("Enter", 13, "\r")
        await tab.until("document.title.startsWith('Overview')")
        await tab.press("Tab", 9)
        assert await tab.js("document.activeElement.className") == "skip"
        await tab.go(f"http://127.0.0.1:{site.port}/jobs")
        link = "/jobs/team-a/a-train"
        await tab.js(f"document.querySelector('a[href=\"{link}\"]').focus()")
        add_job(site.server, "muster-team-a", "a-new", gpus=1, why="no GPU is free")
        await tab.until("document.body.innerText.includes('no GPU is free')")
        assert await tab.js("document.activeElement.getAttribute('href')") == link
        await tab.js("document.getSelection().selectAllChildren(document.querySelector('#body table'))")
        add_job(site.server, "muster-team-a", "a-later", gpus=1, why="later")
        await tab.until("document.getElementById('word').innerText.startsWith('Paused')")
        assert "a-later" not in await tab.js("document.getSelection().toString()")
        await tab.js("document.getSelection().removeAllRanges()")
        await tab.until("document.body.innerText.includes('a-later')")
        await tab.press("Enter", 13, "\r")
        await tab.until("document.title.startsWith('a-train of team-a')")


async def test_a_project_is_created_and_changed_on_the_page(site: Site, tmp_path: Path) -> None:
    async with browsing(tmp_path) as tab:
        await sign_in(tab, site, "ada")
        await tab.go(f"http://127.0.0.1:{site.port}/projects/new")
        await tab.js("document.getElementById('name').value = 'team-x'")
        await tab.js("document.getElementById('gpu').value = '3'")
        await tab.submit("button[value=preview]")
        assert await tab.js("document.querySelector('.preview').innerText.includes('Quota: 0 → 3')")
        assert site.server.find("projects", "team-x") is None
        await tab.submit("button[value=save]")
        assert (await tab.js("location.pathname")) == "/projects"
        assert site.server.find("projects", "team-x") is not None
        await tab.until("document.getElementById('body').innerText.includes('team-x')")
        await tab.go(f"http://127.0.0.1:{site.port}/projects/team-x")
        await tab.js("document.getElementById('gpu').value = '2'")
        await tab.submit("button[value=preview]")
        assert await tab.js("document.querySelector('.preview').innerText.includes('Quota: 3 → 2')")
        await tab.submit("button[value=save]")
        changed = site.server.find("projects", "team-x")
        assert changed is not None
        assert float(changed["spec"]["gpu"]["quota"]) == 2
        assert tab.problems == []


async def test_charts_are_drawn_in_both_themes_and_names_in_them_are_text(site: Site, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    site.past.names = [name, "team-b"]
    async with browsing(tmp_path) as tab:
        await sign_in(tab, site, "ada")
        await tab.go(f"http://127.0.0.1:{site.port}/analytics?hours=6")
        for theme in ("light", "dark"):
            await tab.look(width=768, theme=theme)
            await tab.until("document.querySelectorAll('.plot canvas').length === 7")
        assert name in await tab.js("document.querySelector('.plot[aria-labelledby=chart-idle]').innerText")
        assert await tab.js("document.querySelectorAll('#body img').length") == 0
        assert tab.problems == []


async def test_every_page_fits_in_three_widths(site: Site, tmp_path: Path) -> None:
    async with browsing(tmp_path) as tab:
        await sign_in(tab, site, "ada")
        for path in PAGES:
            await tab.go(f"http://127.0.0.1:{site.port}{path}")
            for width in (1280, 768, 375):
                await tab.look(width=width, theme="light")
                # not innerWidth, which on a phone grows with content that is too wide
                assert await tab.js("document.documentElement.scrollWidth") <= width, (path, width)
            # the API server's message can have a path that is longer than a phone is wide
            await tab.js(
                "document.querySelector('main').appendChild(document.createElement('p')).id = 'path'"
            )
            await tab.js("document.getElementById('path').textContent = '/apis'.repeat(80)")
            assert await tab.js("document.documentElement.scrollWidth") <= width, path
        assert [line for line in tab.problems if "404" not in line] == [], "refused by the pages' own policy"


async def test_rows_of_figures_and_of_charts_leave_no_gap_at_any_width(site: Site, tmp_path: Path) -> None:
    async with browsing(tmp_path) as tab:
        for name, project, path, selector in FILLED:
            await sign_in(tab, site, name, project)
            await tab.go(f"http://127.0.0.1:{site.port}{path}")
            for width in (1600, 1280, 768, 375):
                await tab.look(width=width, theme="light")
                edge, *rows = json.loads(await tab.js(f"JSON.stringify(({ROW_EDGES})('{selector}'))"))
                assert rows, (path, width)
                assert all(abs(row - edge) < 1 for row in rows), (name, path, width, edge, rows)


async def test_no_page_breaks_a_serious_rule_of_axe(site: Site, tmp_path: Path) -> None:
    script = axe()
    async with browsing(tmp_path) as tab:
        for path in ("/sign-in", *PAGES):
            if path == PAGES[0]:
                await sign_in(tab, site, "ada")
            await tab.go(f"http://127.0.0.1:{site.port}{path}")
            await tab.js(f"{script};0")
            for theme in ("light", "dark") if path in IN_BOTH_THEMES else ("dark",):
                await tab.look(width=1280, theme=theme)
                serious = json.loads(
                    await tab.js(f"axe.run().then(found => JSON.stringify(found.{SERIOUS}))")
                )
                assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == [], (path, theme)
