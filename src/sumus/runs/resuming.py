"""A run goes on as it began, or not at all; and whoever interrupts one is told how it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sumus.books import RunFolder
from sumus.data import OtherCountError
from sumus.errors import GuaranteeError, PlanError
from sumus.plan import TrainingPlan
from sumus.training import GIVEN, require_same

__all__ = ["as_it_began", "how_to_resume", "plan_to_resume"]

_READ_OFF = ("data.records_per_silo", "federation.silos")  # what a plan states about records


def how_to_resume(run: RunFolder) -> str:
    """The command or, where records or model were given in Python, the call that goes on with a
    run.
    """
    again = [
        f"{what}=…"
        for what, own in (
            ("model", run.own_model),
            ("silos", run.records_are),
            ("loss", _own_loss(run)),
        )
        if own
    ]
    call = "describe" if run.plan.describes else "train"
    if not again:
        return f"sumus {call} --resume {run.path}"
    return (
        f'sumus.{call}({", ".join(again)}, options=RunOptions(resume=Path("{run.path}"))) with the '
        "same objects"
    )


def _own_loss(run: RunFolder) -> bool:
    return (run.plan.training.loss or "").endswith(GIVEN)


@contextmanager
def as_it_began(path: Path | None) -> Iterator[None]:
    """Load the records of a run that goes on, if `path` is one: its plan is fixed, so the records
    must be those that it states.
    """
    try:
        yield
    except (OtherCountError, PlanError) as error:
        if path is None or (isinstance(error, PlanError) and error.field not in _READ_OFF):
            raise
        raise GuaranteeError(
            f"{path} began with other records. Resume it with those, or start a new run."
        ) from None


def plan_to_resume(
    path: Path, *, seed: int | None, silos: object, model: object, loss: object = None
) -> TrainingPlan:
    """The plan of a run that is continued.

    Guarantee: raises unless seed, records and model are given or left out as when the run began,
        and a run with secret noise is on the arithmetic that it began with.

    Args:
        path: the run folder.
        seed: public seed of a simulation, if given.
        silos: records given in Python, if any; that they are the same is checked where they are
            loaded.
        model: likewise.
        loss: likewise.
    """
    run = RunFolder.open(path)
    begun = {
        "seed": (seed, run.void is not None, "a public seed"),
        "silos": (silos, run.records_are is not None, "records given in Python"),
        "model": (model, run.own_model is not None, "a model given in Python"),
        "loss": (loss, _own_loss(run), "a loss given in Python"),
    }
    for field_name, (value, had, what) in begun.items():
        if had != (value is not None):
            rule = (
                f"must be {'given' if had else 'left out'}: {path} began "
                f"with{'' if had else 'out'} {what}"
            )
            shown = value if value is None or isinstance(value, int) else type(value).__name__
            told = had and field_name != "seed"
            raise PlanError(
                field_name,
                shown,
                rule,
                f"Go on with: {how_to_resume(run)}." if told else "Resume the run as it began.",
            )
    if run.void is None and run.summary is None:
        require_same(run.arithmetic, path, run.plan.training.device)
    return run.plan
