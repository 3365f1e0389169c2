"""What a bound rests on that no proof gives: parties, randomness, and facts taken as public."""

from __future__ import annotations

from sumus.books import RunFolder
from sumus.guarantee import Account, records_in_words

__all__ = ["assumptions_of"]

_CURIOUS = (
    "Honest-but-curious: the server follows the protocol but may keep and study everything it "
    "receives."
)
_ONE_PROCESS = "One process played server and silos here: whoever ran it had all records."
_OWN_RANDOMNESS = (
    "Noise and samples are drawn from secret randomness of the operating system; whoever learns it "
    "is not kept from anything."
)


def assumptions_of(run: RunFolder) -> tuple[tuple[str, str], ...]:
    """(name, value), the parties first, doubts before what is merely taken as public."""
    guarantee = run.guarantee
    rows: list[tuple[str, str]] = []
    if guarantee is not None and run.void is None:
        rows += [("Parties", _parties(run, guarantee)), ("Randomness", _OWN_RANDOMNESS)]
    if guarantee is not None:
        rows += [("Caution", line) for line in guarantee.cautions]
        rows += _taken_as_public(guarantee)
    if run.start is not None:
        rows.append(("Starts from", str(run.start)))
    return tuple(rows)


def _parties(run: RunFolder, guarantee: Account) -> str:
    sentences = [f"{guarantee.trust}."]
    if "honest-but-curious" in guarantee.trust:
        sentences.append(_CURIOUS)
    if run.arithmetic:  # known only to a process that repeats its silos' rounds itself
        sentences.append(_ONE_PROCESS)
    return " ".join(sentences)


def _taken_as_public(guarantee: Account) -> list[tuple[str, str]]:
    """Warnings first: a long list may be cut where there is no room."""
    mark = "warning: "
    lines = sorted(guarantee.assumptions, key=lambda line: not line.startswith(mark))
    known = records_in_words(guarantee.records_per_silo, guarantee.columns, guarantee.unit)
    return [
        *(
            ("Warning" if line.startswith(mark) else "Assumed", line.removeprefix(mark))
            for line in lines
        ),
        *((name.capitalize(), value) for name, value in known),
    ]
