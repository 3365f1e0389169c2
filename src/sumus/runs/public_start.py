"""A start that is no release: a model taught by made-up pictures, in a file that says so."""

from __future__ import annotations

from pathlib import Path

from sumus.books import StartedFrom
from sumus.files import replace_atomically
from sumus.parties import declared_facts
from sumus.plan import TrainingPlan
from sumus.runs.starting import Start
from sumus.training import named_model, public_start

__all__ = ["make_public_start"]


def make_public_start(plan: TrainingPlan, path: Path, *, seed: int = 0) -> Start:
    """Teach the plan's network with made-up pictures and write it for `--start-from`.

    Guarantee: looks at the plan's public facts and at no record.

    Args:
        path: of the file, JSON.
        seed: public, of the pictures and the lessons.
    """
    facts = declared_facts(plan)
    model = named_model(plan, facts.shape, facts.labels)
    taught = public_start(plan, model, facts.shape, seed=seed)
    origin = StartedFrom(model="", public=f"made-up pictures, seed {seed}")
    start = Start.of_vector(taught.double().numpy(), origin)
    replace_atomically(path, start.to_text().encode())
    return start
