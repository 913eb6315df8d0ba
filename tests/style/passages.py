"""The texts of the repository: pages, docstrings, comments, help, messages, names, with their file and line.

A passage is one paragraph. Blocks of code are no passages.
"""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "orchestrator",
    "validation",
    "deployment",
    "hostfacts",
    "musterlab",
    "musterbench",
    "musterweb",
    "gpumemory",
    "image",
)
GENERATED = ("docs/reference/cli.md", "docs/reference/metrics.md", "docs/evidence.md")
"""Pages that `make docs` writes. Their sentences are counted in the code that they come from."""

CODE = "`"
"""Stands in a passage for a piece of code, a placeholder or a quotation: one word that no pattern matches."""
VALUE = "`_`"
"""Stands in a passage for a value in a string. Two single marks would hide the words between them as code."""


@dataclass(frozen=True)
class Passage:
    """One paragraph, table cell, message or name. `measured` says whether its length counts."""

    file: str
    line: int
    kind: str
    text: str
    measured: bool = True


def passages(root: Path = ROOT) -> Iterator[Passage]:
    """Yield the passages of every tracked file that has prose or names."""
    for file in tracked(root):
        if reader := reader_of(file):
            yield from reader(file, (root / file).read_text(encoding="utf-8"))


def tracked(root: Path) -> list[str]:
    """Return the files that Git tracks or would add, as paths from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted(each for each in set(listed.split("\0")) if each and (root / each).is_file())


def reader_of(file: str) -> Callable[[str, str], Iterator[Passage]] | None:
    """Return the function that reads this file; None for a file without prose."""
    top, _, rest = file.partition("/")
    if file.endswith(".md") and (not rest or top == "docs") and file not in GENERATED:
        return page
    if file.endswith(".py"):
        return module if top in PACKAGES else names_of_tests if top == "tests" else None
    if file.endswith((".yml", ".yaml")) and top in ("roles", "playbooks"):
        return ansible
    return None


# -- pages --------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"^( *)(```|~~~)[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_STARTS_BLOCK = re.compile(r"^\s*(?:(?:[-*+]|\d+[.)]|#+|>)\s|\|)")
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"^[\s|:-]*$")


def page(file: str, text: str) -> Iterator[Passage]:
    """Yield the paragraphs, list items, headings and table cells of a Markdown page."""
    text = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    for line, block in blocks(text):
        if block.lstrip().startswith("|"):
            if not _RULE.match(block):
                for cell in _CELL.split(block):
                    yield Passage(file, line, "page", cell, measured=False)
        else:
            yield Passage(file, line, "page", block)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph of a text with the number of its first line; each list item is a paragraph."""
    lines: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines()):
        if lines and (not line.strip() or _STARTS_BLOCK.match(line) or lines[0].lstrip().startswith("#")):
            yield first, "\n".join(lines)
            lines = []
        if line.strip():
            first = first if lines else number + 1
            lines.append(line)
    if lines:
        yield first, "\n".join(lines)


# -- Python -------------------------------------------------------------------------------------------------------

_HELP = {"help", "short_help", "epilog", "description"}
_COMMAND = {"command", "group"}
_NO_PROSE = re.compile(r"^#(?:!|\s*(?:noqa|type:|fmt:|pragma|ruff:|mypy:|-\*-))")
_PROSE = re.compile(r"[A-Za-z]{2,}[ ,;:]+(?:[\w'-]+[ ,;:]+)+[a-z]{2,}")
_PROGRAM = re.compile(r"^\s*[<{#]|\$\(|\b(?:SELECT|CREATE TABLE|ON CONFLICT|DELETE FROM)\b")
"""Matches the beginning of markup, shell and SQL."""
_ALIGNED = re.compile(r"\S   *\S|[─│├└]")
"""Matches columns and diagrams, whose length says nothing."""


def module(file: str, text: str) -> Iterator[Passage]:
    """Yield the docstrings, comments, help texts, messages and defined names of a Python file."""
    tree = ast.parse(text)
    found = _Texts(file)
    found.visit(tree)
    yield from found.passages
    yield from comments(file, text, found.strings)
    for name, line in sorted({Path(file).stem: 1, **found.names}.items(), key=lambda each: each[1]):
        yield Passage(file, line, "name", name, measured=False)


class _Texts(ast.NodeVisitor):
    """Collects strings of a syntax tree by their use, the positions of all strings, and the names that are defined."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.passages: list[Passage] = []
        self.strings: list[ast.expr] = []
        self.names: dict[str, int] = {}
        self._help: set[int] = set()

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            self._add(value, value.value, "help" if id(node) in self._help else "docstring")
        else:
            self.visit(value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.names.setdefault(node.name, node.lineno)
        if any(_is_command(each) for each in node.decorator_list):
            self._help.add(id(node.body[0]))
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 -- the name that ast looks for

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.setdefault(node.name, node.lineno)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self.names.setdefault(node.arg, node.lineno)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.names.setdefault(node.id, node.lineno)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in _HELP and (said := _literal(node.value)):
            self.strings.append(node.value)
            self._add(node.value, said, "help")
        else:
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._message(node, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._message(node, _literal(node) or "")
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part)

    def _message(self, node: ast.expr, said: str) -> None:
        self.strings.append(node)
        if _PROSE.search(said) and not _PROGRAM.search(said):
            self._add(node, said, "message")

    def _add(self, node: ast.expr, said: str, kind: str) -> None:
        self.strings.append(node)
        lines = 1 if said.count("\n") == (node.end_lineno or node.lineno) - node.lineno else 0
        for line, block in blocks(said):
            measured = not _ALIGNED.search(block)
            self.passages.append(Passage(self.file, node.lineno + (line - 1) * lines, kind, block, measured))


def _is_command(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr in _COMMAND


def _literal(node: ast.expr) -> str | None:
    """Return the text of a string, with a mark for every value in it; None for another expression."""
    match node:
        case ast.Constant(value=str(said)):
            return said
        case ast.JoinedStr(values=parts):
            return "".join(_literal(each) or VALUE for each in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (_literal(left) or VALUE) + (_literal(right) or VALUE)
    return None


def comments(file: str, text: str, strings: list[ast.expr]) -> Iterator[Passage]:
    """Yield the comments; consecutive comments on lines of their own are one passage."""
    lines = text.splitlines()
    quoted = _spans(strings)
    run: list[str] = []
    first = 0
    for number, line in enumerate([*lines, ""], start=1):
        column = _comment_column(line, quoted.get(number, ()))
        said = line[column:] if column >= 0 else ""
        alone = column >= 0 and not line[:column].strip()
        if run and not alone:
            yield Passage(file, first, "comment", "\n".join(run))
            run = []
        if said and not _NO_PROSE.match(said):
            words = said.lstrip("# ").partition("noqa")[0]
            if alone:
                first = first if run else number
                run.append(words)
            else:
                yield Passage(file, number, "comment", words)


def _comment_column(line: str, quoted: tuple[tuple[int, int], ...] | list[tuple[int, int]]) -> int:
    """Return the column, in bytes as in `ast`, where the comment of a line begins; -1 if the line has none."""
    at = line.find("#")
    while at >= 0:
        offset = len(line[:at].encode())
        if not any(start <= offset < end for start, end in quoted):
            return at
        at = line.find("#", at + 1)
    return -1


def _spans(strings: list[ast.expr]) -> dict[int, list[tuple[int, int]]]:
    """Return for each line the columns that are part of a string."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for node in strings:
        last = node.end_lineno or node.lineno
        for line in range(node.lineno, last + 1):
            start = node.col_offset if line == node.lineno else 0
            end = (node.end_col_offset or 0) if line == last else 1 << 30
            spans.setdefault(line, []).append((start, end))
    return spans


_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def names_of_tests(file: str, text: str) -> Iterator[Passage]:
    """Yield the names of the tests in a file."""
    for found in _TEST.finditer(text):
        yield Passage(file, text.count("\n", 0, found.start()) + 1, "test-name", found[1], measured=False)


# -- Ansible ------------------------------------------------------------------------------------------------------

_TASK = re.compile(r"^ *(?:- )?(?:name|(?:short_)?description): *(?P<said>[\"']?[A-Z].*)$", re.MULTILINE)
_YAML_COMMENT = re.compile(r"^(?P<before>[^#\n\"']*?)#\s(?P<said>.*)$", re.MULTILINE)


def ansible(file: str, text: str) -> Iterator[Passage]:
    """Yield the names of plays and tasks, the descriptions of variables, and the comments of a YAML file."""
    for found in _TASK.finditer(text):
        said = found["said"].partition(" #")[0].strip("\"'")
        yield Passage(file, text.count("\n", 0, found.start()) + 1, "task", said)
    for found in _YAML_COMMENT.finditer(text):
        yield Passage(file, text.count("\n", 0, found.start()) + 1, "comment", found["said"])
