"""Where a mutation applies: a definition's name and a fragment of Python, not a file and its text.

`where` names a definition by its qualified name, `NoiseDesign.law`, wherever it lies below src.
A module in front, `accounting.release:Release`, is needed only if several modules define the name;
any end of the module's path will do. `module:` alone is what stands outside its definitions.

Fragments are compared token by token. Line breaks, indentation, comments, quotes, and parentheses
and trailing commas without a meaning are ignored, so no formatter can move a fragment away.
"""

from __future__ import annotations

import ast
import bisect
import io
import keyword
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

_LAYOUT = {
    tokenize.NL,
    tokenize.COMMENT,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# From Python 3.12 on a string with a prefix f (3.14: t) is several tokens between these two kinds.
_BEGINS = {getattr(tokenize, name, None) for name in ("FSTRING_START", "TSTRING_START")} - {None}
_ENDS = {getattr(tokenize, name, None) for name in ("FSTRING_END", "TSTRING_END")} - {None}
# Whatever makes one line of a compound statement a program: `elif`, `except`, `case`, a decorator.
_CONTEXTS = (
    "{}",
    "{} pass",
    "if 0: pass\n{} pass",
    "try: pass\n{} pass",
    "match 0:\n {} pass",
    "{}\n case _: pass",
    "{}\ndef _(): pass",
)
Kind = Literal["string", "number", ""]
_DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class AnchorError(ValueError):
    """A mutation that does not say where it applies, or says it of several places."""


@dataclass(frozen=True)
class Token:
    """A token, or strings that stand side by side, from `begin` to `end` of its text."""

    text: str
    begin: int
    end: int
    kind: Kind = ""

    @cached_property
    def key(self) -> str:
        """Equal for two spellings of one token; of a whole project few are asked for."""
        if self.kind == "string":
            return f"string {ast.dump(ast.parse(self.text, mode='eval'))}"
        return repr(ast.literal_eval(self.text)) if self.kind == "number" else self.text


@dataclass(frozen=True)
class Definition:
    """Lines of one file, counted from 1; several ranges for overloads and for a module's rest."""

    file: Path  # relative to the tree's root
    lines: tuple[range, ...]


@dataclass(frozen=True)
class SourceTree:
    """The definitions below `root`/src and the tests below `root`/tests."""

    root: Path

    def definition(self, where: str) -> Definition:
        """The one definition that `where` names; AnchorError if there is none, or several."""
        module, _, name = where.rpartition(":")
        candidates = self._definitions.get(name, {})
        here = [path for path in candidates if f".{path}".endswith(f".{module}")] if module else []
        modules = here or (list(candidates) if name else [])
        if len(modules) != 1:
            places = ", ".join(modules) or "no module"
            raise AnchorError(f"{where!r} must name one definition below src; defined in {places}")
        return candidates[modules[0]]

    def mutated(self, where: str, old: str, new: str) -> tuple[Path, str]:
        """The file that holds `where`, and its text with `old` replaced by `new` there."""
        definition = self.definition(where)
        text = (self.root / definition.file).read_text(encoding="utf-8")
        try:
            return definition.file, replaced(text, definition.lines, old, new)
        except AnchorError as error:
            raise AnchorError(f"{where} in {definition.file}: {error}") from None

    def test(self, name: str) -> str:
        """What pytest is told for `name`: a test file, or the end of its path, and `::` a test.

        A file that is not at the path given is looked for by its own name.
        """
        path, colons, test = name.partition("::")
        alike = self._files.get(Path(path).name, [])
        files = [file for file in alike if file.as_posix().endswith(f"/{path}")] or alike
        if len(files) != 1:
            raise AnchorError(f"{path} must name one file below tests, and names {len(files)}")
        return files[0].relative_to(self.root).as_posix() + colons + test

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        """Name → the files below tests that have it."""
        files: dict[str, list[Path]] = {}
        for file in sorted((self.root / "tests").rglob("*.py")):
            files.setdefault(file.name, []).append(file)
        return files

    @cached_property
    def _definitions(self) -> dict[str, dict[str, Definition]]:
        """Qualified name → module → definition; the empty name is a module's own level."""
        definitions: dict[str, dict[str, Definition]] = {}
        source = self.root / "src"
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            file = path.relative_to(self.root)
            program = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
            for name, lines in _named(program):
                known = definitions.setdefault(name, {}).get(module, Definition(file, ()))
                definitions[name][module] = Definition(file, (*known.lines, lines))
        return definitions


def _named(program: ast.Module) -> Iterator[tuple[str, range]]:
    """Every definition's qualified name and lines; the empty name for what is outside of all."""
    yield "", range(0)
    for statement in program.body:
        if not isinstance(statement, _Definition):
            yield "", _lines(statement)
    yield from _named_in(program, prefix="", in_function=False)


def _named_in(parent: ast.AST, *, prefix: str, in_function: bool) -> Iterator[tuple[str, range]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, _Definition):
            name = prefix + node.name
            yield name, _lines(node)
            inside = not isinstance(node, ast.ClassDef)
            yield from _named_in(node, prefix=f"{name}.", in_function=inside)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not in_function:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for named in ast.walk(target):
                    if isinstance(named, ast.Name) and isinstance(named.ctx, ast.Store):
                        yield prefix + named.id, _lines(node)
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _named_in(node, prefix=prefix, in_function=in_function)


def _lines(node: ast.stmt) -> range:
    decorators = node.decorator_list if isinstance(node, _Definition) else []
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return range(first, (node.end_lineno or node.lineno) + 1)


def replaced(text: str, lines: Sequence[range], old: str, new: str) -> str:
    """`text` with the one occurrence of the fragment `old` in `lines` replaced by `new`.

    The statements that it touches are written on one line each; all other text stays as it is.
    """
    starts = _line_starts(text)
    statements_here = [
        statement
        for statement in statements(text)
        if any(bisect.bisect(starts, statement[0].begin) in part for part in lines)
    ]
    places = [
        (number, token)
        for number, statement in enumerate(statements_here)
        for token in essential(statement)
    ]
    sought = [token.key for statement in statements(old) for token in essential(statement)]
    keys = [token.key for _, token in places]
    if not sought:
        raise AnchorError("`old` is empty")
    matches = [
        start
        for start in range(len(keys) - len(sought) + 1)
        if keys[start : start + len(sought)] == sought
    ]
    if len(matches) != 1:
        raise AnchorError(f"`old` must occur once, and occurs {len(matches)} times: {old}")
    (first, begin), (last, end) = places[matches[0]], places[matches[0] + len(sought) - 1]
    before, after = _rest(statements_here[first], statements_here[last], begin.begin, end.end)
    start, stop = statements_here[first][0].begin, statements_here[last][-1].end
    margin = text[text.rfind("\n", 0, start) + 1 : start]
    inserted = textwrap.dedent(new.strip("\n")).rstrip().replace("\n", "\n" + margin)
    head = _on_one_line(before, text) + _gap(text, before[-1].end, begin.begin) if before else ""
    tail = _gap(text, end.end, after[0].begin) + _on_one_line(after, text) if after else ""
    return text[:start] + head + inserted + tail + text[stop:]


def _rest(
    first: tuple[Token, ...], last: tuple[Token, ...], begin: int, end: int
) -> tuple[list[Token], list[Token]]:
    """What stays of the first and of the last statement around `begin` to `end`.

    Of two parentheses without a meaning that the cut parts, the one outside goes too,
    with a trailing comma if it has one.
    """
    parted: set[int] = set()
    for statement in (first, last):
        groups = _without_meaning(statement)
        commas = {group[0] for group in groups if len(group) == 1}
        for group in groups:
            if len({begin <= token.begin < end for token in group}) == 2:
                comma = statement[statement.index(group[1]) - 1]
                parted |= {token.begin for token in (*group, *({comma} & commas))}
    before = [token for token in first if token.begin < begin and token.begin not in parted]
    after = [token for token in last if token.begin >= end and token.begin not in parted]
    return before, after


def _on_one_line(tokens: Sequence[Token], text: str) -> str:
    line = tokens[0].text
    for left, right in pairwise(tokens):
        line += _gap(text, left.end, right.begin) + right.text
    return line


def _gap(text: str, end: int, begin: int) -> str:
    """The blanks between two tokens, or one blank for a line break or anything left out."""
    between = text[end:begin]
    return between if not between.strip(" ") else " "


@cache
def statements(text: str) -> tuple[tuple[Token, ...], ...]:
    """The tokens of every line of a program, or of a fragment, as Python counts lines."""
    starts = _line_starts(text)
    lines: list[list[Token]] = [[]]
    opened: list[int] = []  # where strings of several tokens begin, the innermost last
    try:
        for kind, spelling, start, stop, _ in tokenize.generate_tokens(io.StringIO(text).readline):
            begin, end = starts[start[0] - 1] + start[1], starts[stop[0] - 1] + stop[1]
            if kind in _BEGINS:
                opened.append(begin)
            elif kind in _ENDS:
                begin = opened.pop()
                if not opened:
                    _append_string(lines[-1], Token(text[begin:end], begin, end, "string"))
            elif kind == tokenize.NEWLINE:
                lines.append([])
            elif kind == tokenize.STRING and not opened:
                _append_string(lines[-1], Token(spelling, begin, end, "string"))
            elif kind not in _LAYOUT and not opened:
                sort: Kind = "number" if kind == tokenize.NUMBER else ""
                lines[-1].append(Token(spelling, begin, end, sort))
    except (tokenize.TokenError, SyntaxError) as error:
        raise AnchorError(f"no fragment of Python ({error.args[0]}): {text[:200]}") from None
    if not all(map(_is_balanced, lines)):
        raise AnchorError(f"no fragment of Python (brackets that do not close): {text[:200]}")
    return tuple(tuple(line) for line in lines if line)


def _is_balanced(line: Sequence[Token]) -> bool:
    depths = accumulate(_DEPTH.get(token.text, 0) for token in line)
    return min(depths, default=0) >= 0


def _line_starts(text: str) -> list[int]:
    """Where every line begins, and the end, where `tokenize` puts a line of its own."""
    ends = accumulate(len(line) + 1 for line in text.split("\n")[:-1])
    return [0, *ends, len(text)]


def _append_string(line: list[Token], token: Token) -> None:
    """Adds a string, to the one on its left if there is one: Python joins them."""
    if line and line[-1].kind == "string":
        left = line.pop()
        token = Token(f"{left.text} {token.text}", left.begin, token.end, "string")
    line.append(token)


def essential(statement: tuple[Token, ...]) -> list[Token]:
    """A statement without the parentheses and trailing commas that do not change its meaning."""
    dropped = {token.begin for group in _without_meaning(statement) for token in group}
    return [token for token in statement if token.begin not in dropped]


@cache
def _without_meaning(statement: tuple[Token, ...]) -> list[tuple[Token, ...]]:
    """Pairs of parentheses and trailing commas; all of them may be left out together."""
    kept = list(statement)
    groups: list[tuple[Token, ...]] = []
    meaning = None
    for group in _candidates(statement):
        meaning = meaning or _meaning(_spelling(kept))
        attempt = [token for token in kept if token not in group]
        if meaning is not None and _meaning(_spelling(attempt)) == meaning:
            kept = attempt
            groups.append(group)
    return groups


def _candidates(statement: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """Trailing commas, and parentheses that call nothing."""
    opened: list[tuple[Token, bool]] = []
    for position, token in enumerate(statement):
        previous = statement[position - 1] if position else None
        if token.text in {"(", "[", "{"}:
            opened.append((token, token.text == "(" and not _is_called(previous)))
        elif token.text in {")", "]", "}"}:
            opening, groups = opened.pop()
            if previous is not None and previous.text == ",":
                yield (previous,)
            if groups:
                yield opening, token


def _is_called(token: Token | None) -> bool:
    """Whether parentheses after this token are those of a call, or belong to it otherwise."""
    if token is None:
        return False
    # Python 3.14 reads `except A, B:`, which older versions do not.
    name = token.text.isidentifier() and (
        not keyword.iskeyword(token.text) or token.text == "except"
    )
    return name or token.text in {")", "]", "}"} or token.kind == "string"


def _spelling(tokens: Sequence[Token]) -> str:
    return " ".join(token.text for token in tokens)


@cache
def _meaning(line: str) -> str | None:
    """The syntax tree of one line of a program; None if no context makes it one."""
    for context in _CONTEXTS:
        try:
            return ast.dump(ast.parse(context.format(line)))
        except SyntaxError:
            continue
    return None
