"""The stored counts of the patterns, and the two ways in which they may change.

A line of the file is a path, a kind of text with a pattern, and how often the pattern matches there:

    orchestrator/cli/submit.py docstring.what 3

Counts may only fall. Git merges the file by union (.gitattributes). If a line is there twice, the higher count is
taken, and `--lower` stores the present count once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.style.passages import ROOT, passages
from tests.style.patterns import Finding, findings, page_finding, plain, words

STORED = Path(__file__).with_name("counts.txt")
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
_MARKERS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")


class Key(NamedTuple):
    """A file, and what is counted in it: a kind of text and a pattern, `docstring.what`."""

    file: str
    counted: str

    @property
    def package(self) -> str:
        """The folder at the top that has the file; `.` for a file beside them."""
        top, inside, _ = self.file.partition("/")
        return top if inside else "."


Counts = dict[Key, int]


def key(finding: Finding) -> Key:
    """Return the key that counts the finding."""
    return Key(finding.file, f"{finding.kind}.{finding.pattern}")


def all_findings(root: Path = ROOT) -> list[Finding]:
    """Return every finding in the repository."""
    banned = words_not_in_names((root / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8"))
    found: list[Finding] = []
    lengths: Counter[str] = Counter()
    for passage in passages(root):
        found += findings(passage, banned)
        if passage.kind == "page" and passage.measured:
            lengths[passage.file] += words(plain(passage.text))
    for file, length in lengths.items():
        found += page_finding(file, length)
    return found


def words_not_in_names(glossary: str) -> frozenset[str]:
    """Return the words that must not be in names, by the table in docs/glossary.md."""
    return frozenset(word for row in unused_words(glossary) for word in row[2].replace(",", " ").split())


def unused_words(glossary: str) -> list[list[str]]:
    """Return the cells of each row in the table of words that are not used."""
    table = glossary.partition("| write | not | not in names | pattern |\n")[2].partition("\n\n")[0]
    return [
        [cell.strip(" `") for cell in line.strip().strip("|").split("|")] for line in table.splitlines()[1:]
    ]


def counted(found: Iterable[Finding]) -> Counts:
    """Return how often each pattern matches in each file."""
    return dict(Counter(map(key, found)))


def load(text: str) -> Counts:
    """Return the counts that a text stores. Raises ValueError with the first line that is no count."""
    counts: Counts = {}
    for line in text.splitlines():
        if line.startswith(_MARKERS):
            continue
        try:
            file, what, number = line.rsplit(" ", 2)
            counts[Key(file, what)] = max(int(number), counts.get(Key(file, what), 0))
        except ValueError:
            raise ValueError(f"{STORED.name}: no count: {line!r}") from None
    return counts


def dump(counts: Counts) -> str:
    """Return the text that stores the counts."""
    return "".join(
        f"{each.file} {each.counted} {number}\n" for each, number in sorted(counts.items()) if number
    )


def risen(stored: Counts, now: Counts) -> list[Key]:
    """Return the keys whose count is above the stored one."""
    return sorted(each for each, number in now.items() if number > stored.get(each, 0))


def fallen(stored: Counts, now: Counts) -> list[Key]:
    """Return the keys whose count is below the stored one."""
    return sorted(each for each, number in stored.items() if number > now.get(each, 0))


def lowered(stored: Counts, now: Counts) -> Counts:
    """Return the stored counts, none of them above what is counted now.

    If a file was removed and another file of its package is above its stored count, the removed file keeps its counts:
    it may have been moved.
    """
    files = {each.file for each in now}
    above = {each.package for each in risen(stored, now)}
    return {
        each: number if each.file not in files and each.package in above else min(number, now.get(each, 0))
        for each, number in stored.items()
    }


def moved(stored: Counts, now: Counts) -> tuple[Counts, list[str]]:
    """Return the counts with every package as it is now, and a line for each sum of a package that has risen.

    Files of a package may be moved, divided and joined. A package of which a sum has risen keeps its stored counts.
    """
    before, after = sums(stored), sums(now)
    rises = [
        f"{package}: {each} {before[package][each]} -> {number}"
        for package, of_package in sorted(after.items())
        for each, number in sorted(of_package.items())
        if number > before[package][each]
    ]
    unchanged = {rise.partition(":")[0] for rise in rises}
    counts = {each: number for each, number in now.items() if each.package not in unchanged}
    return counts | {each: number for each, number in stored.items() if each.package in unchanged}, rises


def sums(counts: Counts) -> dict[str, Counter[str]]:
    """Return the counts of each package."""
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for each, number in counts.items():
        packages[each.package][each.counted] += number
    return packages


def report(found: Iterable[Finding], stored: Counts, keys: Iterable[Key]) -> str:
    """Return the findings that these keys count, with file, line, sentence and replacement."""
    wanted = dict.fromkeys(keys, "")
    by_key: dict[Key, list[Finding]] = defaultdict(list)
    for finding in found:
        if key(finding) in wanted:
            by_key[key(finding)].append(finding)
    lines: list[str] = []
    for each in wanted:
        lines.append(f"{each.file}: {each.counted}: {stored.get(each, 0)} stored, {len(by_key[each])} now")
        lines += [f"  {finding}" for finding in by_key[each]]
    return "\n".join(lines)
