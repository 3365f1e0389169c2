"""What every terminal can show: ε spelled out where there is no Greek, lines that hang below their
label, no colour where none is wanted.

ε ≤ 1 at δ = 0.0001      epsilon <= 1 at delta = 0.0001
"""

from __future__ import annotations

import codecs
import os
import unicodedata
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

__all__ = ["Hanging", "animates", "colour", "screen", "speak_plainly", "spelled"]

_SYMBOLS = """\
≤ <=  ≥ >=  ≈ ~  ≠ !=  − -  – -  — -  … ...  · *
× x  ∘ o  ⊗ x  √ sqrt  ‖ ||  ∞ inf  ² ^2  ³ ^3  → ->  ← <-  ± +/-  ½ 1/2  ¼ 1/4
“ "  ” "  ’ '  ′ '  • *  ∈ in  ⁻ ^-  ⌈ ceil(  ⌉ )  ⌊ floor(  ⌋ )  ─ -  │ |  └ `  ├ |  ► >  ∎ .  █ #  ▒ =
"""
_SPELLED = dict(pair.split(" ") for line in _SYMBOLS.splitlines() for pair in line.split("  "))
_HANDLER = "sumus-spelled"
_WIDEST = 120
_LABEL = 15  # columns of "  counts on    "
_NARROW = 50  # columns below which a text has a line of its own below its label


def speak_plainly(stream: Any) -> None:
    """Let a stream spell out what its encoding lacks: an ε must neither crash a terminal nor become
    a question mark.
    """
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=_HANDLER)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(spelled, error.object[error.start : error.end])), error.end


def spelled(character: str) -> str:
    """A character in ASCII: a Greek letter by its name, a letter with an accent without it, a
    question mark where nothing helps.
    """
    if character in _SPELLED:
        return _SPELLED[character]
    words = unicodedata.name(character, "").split()
    if words[:1] == ["GREEK"] and "LETTER" in words:
        name = words[words.index("LETTER") + 1].lower()
        return name.capitalize() if "CAPITAL" in words else name
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"


def screen(*, stderr: bool = False) -> Console:
    """Standard output, never wider than it is pleasant to read; a file or a pipe gets lines of 120
    columns, whatever started it.
    """
    console = _Spelling(highlight=False, stderr=stderr)
    return (
        console
        if console.is_terminal and console.width <= _WIDEST
        else _Spelling(highlight=False, stderr=stderr, width=_WIDEST)
    )


class _Spelling(Console):
    """Spells out before columns are laid out, so that tables stay straight where there is no
    Greek.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        whole = {"soft_wrap": True} if any(isinstance(item, Hanging) for item in objects) else {}
        super().print(*objects, **(options | whole))

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(
            text.encode(self.encoding, _HANDLER).decode(self.encoding), **options
        )


codecs.register_error(_HANDLER, _spell)


def animates(console: Console) -> bool:
    """Whether a bar can move on it; otherwise progress is told in lines."""
    return console.is_terminal and not console.is_dumb_terminal


def colour() -> bool | None:
    """False where colours are not wanted (NO_COLOR) or not understood; None where that is left to
    the stream.
    """
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


class Hanging:
    """Lines such as "  counts on    5 of 5 silos …".

    On a terminal that is too narrow the text goes on below itself, not below its label. Files and
    pipes get every line whole.
    """

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._text.split("\n"):
            if console.is_terminal:
                yield from _wrapped(line, console, options.max_width)
            else:
                line.no_wrap, line.overflow = True, "ignore"
                yield line


def _wrapped(line: Text, console: Console, width: int) -> Iterator[Text]:
    if line.cell_len <= width:
        yield line
        return
    labelled = (
        line.plain.startswith("  ")
        and line.plain[_LABEL - 1 : _LABEL] == " "
        and line.plain[2:3] != " "
    )
    label, body = (line[:_LABEL], line[_LABEL:]) if labelled else (Text(), line)
    if labelled and width < _NARROW:
        label.rstrip()
        yield label
        label = Text(" " * 4)
    below = Text(" " * (label.cell_len or 4))
    for number, row in enumerate(body.wrap(console, max(width - below.cell_len, 10))):
        yield (below if number else label) + row
