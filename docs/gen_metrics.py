"""Writes the table of metrics in watching.md from the code: `python docs/gen_metrics.py`."""

from __future__ import annotations

from pathlib import Path

from sumus.watching import Health, LiveState
from sumus.watching.metrics import families_of
from sumus.watching.state import Books, Connection, Costs, Measured, Part, Promise, Queued

PAGE = Path(__file__).parent / "watching.md"
_WORDS = {"unit": "record", "neighbours": "one record", "trust": "all silos"}
_EPSILON = "the six of every ε"


def everything(watched: str) -> LiveState:
    """A state that has something to say about every metric."""
    return LiveState(
        watched=watched,
        began=0.0,
        at=0.0,
        promise=Promise(
            verdict="proved", spent=0.1, epsilon=1.0, delta=1e-5, analysis="single-step", **_WORDS
        ),
        books=Books(dataset="d", spent=0.1, delta=1e-5, runs=1, proved=True, limit=4.0, **_WORDS),
        measured=Measured(
            name="accuracy", title="", text="", value=0.5, how="secure", round=1, plus_minus=0.1
        ),
        costs=Costs(seconds={"local": 1.0}),
        connection=Connection(up=True, since=0.0),
        queue=(Queued(number=1, hash="", words="", state="waiting", done=0, rounds=1),),
        parts=(Part(name="vault", up=True, since=0.0),),
        health=Health(
            disk_free=1,
            disk_size=2,
            certificates_end=0.0,
            backup_made=0.0,
            broken=(),
            runs_received=0,
        ),
    )


def table() -> str:
    """A line for every metric."""
    lines = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    families = {each.name: each for each in families_of(everything("operator"), alive=True)}
    for family in families.values():
        sample = family.samples[0]
        labels = ", ".join(f"`{label}`" for label in sample.labels) or "–"
        if "neighbours" in sample.labels:
            labels = _EPSILON
        kind = {"stateset": "gauge"}.get(family.type, family.type)
        said = family.documentation.rstrip(".").replace("|", "\\|")
        lines.append(f"| `{sample.name}` | {kind} | {labels} | {said} |")
    streams = "| `sumus_watch_streams` | gauge | – | Readers of the live page |"
    return "\n".join([*lines, streams]) + "\n"


def written(page: str) -> str:
    """The page with the table as the code has it."""
    before, _, _ = page.partition("| metric | kind |")
    return before + table()


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
