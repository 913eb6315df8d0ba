"""The pictures are drawn from their data, each is on a page, and its description has its content in words."""

import re

import pytest

from tests.docs.pages import PAGES, ROOT
from tests.docs.test_names import loaded

FOLDER = ROOT / "docs" / "pictures"
IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<file>[^)]*pictures/(?P<name>[\w-]+\.svg))\)")


def test_the_pictures_are_drawn_from_their_data() -> None:
    drawn = loaded(ROOT / "docs" / "pictures.py").pictures()
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == drawn, "make docs"
    assert all("prefers-color-scheme:dark" in text for text in drawn.values())


def test_each_picture_is_on_a_page_with_a_description() -> None:
    images = [(page, found) for page in PAGES for found in IMAGE.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(found["name"] for _, found in images) == sorted(path.name for path in FOLDER.iterdir())
    assert all((page.parent / found["file"]).is_file() for page, found in images)
    assert all(len(found["alt"]) > 40 for _, found in images)


def test_a_text_that_is_too_long_for_its_box_is_refused() -> None:
    module = loaded(ROOT / "docs" / "pictures.py")
    box = module.Box(0, 0, 50, 20, ("a long line of text",), "b")
    with pytest.raises(ValueError, match="too long for its box"):
        list(module._box(box))
