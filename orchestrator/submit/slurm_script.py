"""Parses a batch script of Slurm: its interpreter, its option lines, and the commands and variables of its body.

The rules are those of sbatch (https://slurm.schedmd.com/sbatch.html): the first line names the interpreter. Lines that
begin with `#SBATCH`, before the first command, have options. `#MUSTER` lines have options of `muster submit`.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import UsageError

SBATCH: Final = "#SBATCH"
MUSTER: Final = "#MUSTER"
_OTHER_MARKS: Final = ("#PBS", "#BSUB")
_HEREDOC = re.compile(r"<<-?\s*")
_DELIMITER = re.compile(r"[\"'\\]?([A-Za-z_]\w*)")
_VARIABLE = re.compile(r"\$(\{[!#]?)?((?:SLURM|SBATCH|SLURMD)_\w+)(:?[-=+?])?")
_WORD = re.compile(r"[a-z]+")
_SEPARATOR = re.compile(r"[;&|(){}`\n]")
_BEFORE_PROGRAM = re.compile(r"[A-Za-z_]\w*\+?=|\d*[<>]")
_REDIRECTION = re.compile(r"\d*[<>]+")
_BARE = re.compile(r"(?<![\w${!#])(?:SLURM|SLURMD)_\w+\b(?!\+?=)")
_KEYWORDS: Final = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "time"))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a script; `number` is 1 for the first."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the body: its words, with the content of quotes replaced by `_`."""

    line: int
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """The name of the program without its directory."""
        return self.words[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Script:
    """A script, divided into its parts."""

    interpreter: tuple[str, ...]
    """The words of the first line: a path, and at most one argument."""
    text: str
    options: tuple[Line, ...]
    """The lines with `#SBATCH`, without this mark."""
    muster_options: tuple[Line, ...]
    late: tuple[int, ...]
    """Numbers of `#SBATCH` lines after the first command, which Slurm does not read."""

    @property
    def body(self) -> str:
        """Everything after the first line, so that numbers of lines begin with 2."""
        return self.text.partition("\n")[2]


def read_script(content: bytes) -> Script:
    """Return the parts of a script. Raises UsageError for a script that Slurm would refuse as well."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UsageError("is no valid UTF-8; convert it") from error
    if "\0" in text:
        raise UsageError("has a NUL character; give the script and not a program")
    if "\r\n" in text:
        raise UsageError("has line ends of DOS; convert it, for example with dos2unix")
    lines = text.split("\n")
    if not lines[0].startswith("#!") or not lines[0][2:].strip():
        raise UsageError("does not begin with #! and an interpreter; write #!/bin/bash in its first line")
    options, own, late = [], [], []
    in_head = True
    for number, line in enumerate(lines, start=1):
        if line.startswith(_OTHER_MARKS):
            raise UsageError(
                f"line {number}: {line.split()[0]} is an option of another system; write it as {SBATCH}"
            )
        if line.startswith(MUSTER):
            own.append(Line(number, line.removeprefix(MUSTER)))
        elif line.startswith(SBATCH) and in_head:
            options.append(Line(number, line.removeprefix(SBATCH)))
        elif line.startswith(SBATCH):
            late.append(number)
        elif line.strip() and not line.lstrip().startswith("#"):
            in_head = False
    interpreter = tuple(lines[0][2:].strip().split(None, 1))
    return Script(interpreter, text, tuple(options), tuple(own), tuple(late))


def option_words(line: Line) -> list[str]:
    """Return the words of an option line without its comment. Raises UsageError."""
    lexer = shlex.shlex(line.text, posix=True, punctuation_chars="")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError("has a quotation mark without its partner; add it") from error
    comment = next((place for place, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def commands(script: Script) -> Iterator[Command]:
    """Yield the commands of the body, also those in `$(…)` and after `|`, but not those in quoted text.

    Raises UsageError if a quotation mark has no partner.
    """
    for line in _logical_lines(script):
        for segment in _SEPARATOR.split(line.text.replace("$(", "(")):
            words = segment.split()
            while words and (words[0] in _KEYWORDS or _BEFORE_PROGRAM.match(words[0])):
                del words[: 2 if _REDIRECTION.fullmatch(words[0]) else 1]
            if words:
                yield Command(line.number, tuple(words))


def unset_variables(script: Script, is_set: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable of Slurm that the body reads although it is not set and the body gives it no
    default.
    """
    for number, line in enumerate(script.body.split("\n"), start=2):
        if line.lstrip().startswith("#"):
            continue
        for brace, name, default in _VARIABLE.findall(line):
            if name not in is_set and not (brace and default):
                yield number, name


def named_variables(script: Script, is_set: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable of Slurm that the body names without `$`, as in `$((SLURM_NTASKS * 2))`."""
    for number, line in enumerate(script.body.split("\n"), start=2):
        if not line.lstrip().startswith(("#", "unset ")):
            yield from ((number, name) for name in _BARE.findall(line) if name not in is_set)


def quoted_names(script: Script, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each of these commands that occurs in quoted text or as an argument of another command."""
    plain = {(command.line, command.program) for command in commands(script)}
    for number, line in enumerate(script.body.split("\n"), start=2):
        if not line.lstrip().startswith("#"):
            for name in _WORD.findall(line):
                if name in names and (number, name) not in plain:
                    yield number, name


def _logical_lines(script: Script) -> Iterator[Line]:
    """Yield lines with continuations joined, without comments and here-documents, quoted characters as `_`.

    Raises UsageError if a quotation mark has no partner.
    """
    code = _Code()
    joined, until, start = "", "", 2
    lines = script.body.split("\n")
    for number, line in enumerate(lines, start=2):
        if until:
            until = "" if line.strip() == until else until
            continue
        if not joined:
            start = number
        continues = line.endswith("\\") and not code.is_literal
        visible = code.read(line[:-1] if continues else line)
        until = _end_of_document(line, visible, lines[number - 1 :])
        joined += visible
        if continues or code.is_quoted:
            joined += " " if continues else "_"
        else:
            yield Line(start, joined)
            joined = ""
    if code.is_quoted:
        raise UsageError(f"line {start}: a quotation mark has no partner; add it")
    yield Line(start, joined)


def _end_of_document(line: str, visible: str, following: list[str]) -> str:
    """Return the line that ends the here-document that begins in this line; empty if none begins."""
    for sign in _HEREDOC.finditer(visible):
        end = _DELIMITER.match(line, sign.end())
        if end and visible[sign.start() - 1 : sign.start()] != "<" and end[1] in map(str.strip, following):
            return end[1]
    return ""


class _Code:
    """Reads a shell script line by line and knows in which quotes it is."""

    def __init__(self) -> None:
        self._inside: list[str] = []
        """The open quotes, backquotes in them, and parentheses of `$(`, from outside to inside."""

    @property
    def is_literal(self) -> bool:
        """Whether the next character is in single quotes, in which a line does not continue."""
        return self._inside[-1:] in (["'"], ["$'"])

    @property
    def is_quoted(self) -> bool:
        """Whether the next character is in single or double quotes."""
        return self.is_literal or self._inside[-1:] == ['"']

    def read(self, line: str) -> str:
        """Return the line without its comment; quoted characters are `_`."""
        code, place = "", 0
        while place < len(line):
            char, pair = line[place], line[place : place + 2]
            place += 1
            if char == "'" and self.is_literal:
                code += "_"
                self._inside.pop()
            elif self._inside[-1:] == ["'"]:
                code += "_"
            elif char == "\\":
                code += "__"
                place += 1
            elif pair == "$(" and not self.is_literal:
                self._inside.append("(")
                code += pair
                place += 1
            elif self.is_quoted:
                code += char if char == "`" else "_"
                self._in_double_quotes(char)
            elif char in "\"'":
                self._inside.append("$'" if char == "'" and code[-1:] == "$" else char)
                code += "_"
            elif char == "#" and (not code or code[-1].isspace() or code[-1] in ";&|("):
                break
            else:
                self._in_code(char)
                code += char
        return code

    def _in_double_quotes(self, char: str) -> None:
        if self.is_literal:
            return
        if char == '"':
            self._inside.pop()
        elif char == "`":
            self._inside.append(char)

    def _in_code(self, char: str) -> None:
        last = self._inside[-1:]
        if char == "(" and last == ["("]:
            self._inside.append("(")
        elif (char == ")" and last == ["("]) or last == [char]:
            self._inside.pop()
