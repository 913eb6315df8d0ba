"""What `make site` needs beyond its settings: the documents of the repository's root, and links to its other files."""

import logging
import re
from pathlib import Path
from typing import Any

from properdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
ROOT_DOCUMENTS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
BEGINS_BLOCK = re.compile(r"(?:[-*] |\d+\. |\|)")
HEADING = re.compile(r"#{1,6} ")
IN_CODE = re.compile(r"\s*```")

logger = logging.getLogger("properdocs.hooks.muster")  # a strict build counts the warnings of this logger


def on_files(files: Files, config: Any) -> Files:
    """Return the files with those of the repository's root among them, each under the name that it has in the site."""
    for name, page in ROOT_DOCUMENTS.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with links to files outside the site as names, and warn of lists that would not show as lists."""
    source = page.file.src_uri
    for line in glued_lines(markdown):
        logger.warning("%s: a list or table needs an empty line before it: %r", source, line)
    directory = ROOT if source in ROOT_DOCUMENTS.values() else (ROOT / "docs" / source).parent
    return LINK.sub(lambda link: site_link(link, directory, source), markdown)


def site_link(link: re.Match[str], directory: Path, source: str) -> str:
    """Return a link as the site shows it; if the site lacks the file, the file's name without a link."""
    target = link["target"]
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    anchor = link["anchor"] or ""
    path = (directory / target).resolve()
    if path.is_relative_to(ROOT) and (page := ROOT_DOCUMENTS.get(str(path.relative_to(ROOT)))):
        return f"[{link['text']}]({'../' * source.count('/')}{page}{anchor})"
    if path.is_relative_to(ROOT / "docs") or (directory == ROOT and (ROOT / "docs" / target).is_file()):
        return link[0]
    if not path.exists():
        logger.warning("%s: links to %s, which does not exist", source, target)
    return link["text"] if "`" in link["text"] else f"{link['text']} (`{path.relative_to(ROOT)}`)"


def glued_lines(markdown: str) -> list[str]:
    """Return the first lines of lists and tables directly below a paragraph, which Markdown proper joins to it."""
    glued = []
    code = False
    may_begin = True
    for line in markdown.splitlines():
        if IN_CODE.match(line):
            code = not code
        if not code and not may_begin and BEGINS_BLOCK.match(line):
            glued.append(line)
        may_begin = (
            not line
            or line.startswith((" ", "<!--"))
            or bool(BEGINS_BLOCK.match(line) or HEADING.match(line))
        )
    return glued
