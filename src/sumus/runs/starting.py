"""The released model that a run begins with (`training.start_from`), and where it comes from.

What a run makes of a model that was released before is post-processing of that release
(docs/mathematics.md, section 9): the new run pays for its own sums, and the earlier one stands on
the ledger of its records already. That holds only if the earlier release was paid for, so a run
without a guarantee is no start; whoever calls its model public gives its file instead.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.books import JOURNAL, RunFolder, StartedFrom, dataset_of, rounded_up
from sumus.errors import DataError, GuaranteeError, PlanError, StorageError, SumusError
from sumus.files import from_json, read_bytes
from sumus.guarantee import NoiseDesign
from sumus.parties import model_hash
from sumus.plan import TrainingPlan
from sumus.training import released_from

__all__ = ["Start", "find_start", "with_start"]

_KEY = "training.start_from"


@final
@dataclass(frozen=True, kw_only=True)
class Start:
    """A model to begin with.

    Args:
        parameters: θ₀, rounded to what silos receive.
        origin: its hash and where it comes from.
    """

    parameters: npt.NDArray[np.float64]
    origin: StartedFrom

    @classmethod
    def read(cls, path: Path) -> Start:
        """The model that a run folder has released last; or that of a file: `model.pt` or a vector
        in `.npy`, of which no run is known, or a public start of `sumus pretrain`.
        """
        if (path / JOURNAL).is_file():
            return cls._of_run(RunFolder.open(path))
        if not path.is_file():
            raise DataError(
                f"--start-from {path} is neither a run folder nor a file. Give a folder of "
                "`sumus train`, its model.pt, or a vector in .npy."
            )
        if path.suffix == ".json":
            return cls.from_text(read_bytes(path).decode("utf-8", "replace"))
        return cls.of_vector(_vector_of(path))

    @classmethod
    def of_vector(cls, vector: npt.NDArray[np.float64], origin: StartedFrom | None = None) -> Start:
        """A model by its parameters.

        Args:
            origin: what is known of it; its hash is computed here.
        """
        sent = np.asarray(vector, dtype=np.float32).astype(np.float64)
        if sent.ndim != 1 or not len(sent) or not np.isfinite(sent).all():
            raise DataError(
                "a starting model must be one vector of finite numbers. Give the file of another "
                "model."
            )
        known = origin or StartedFrom(model="")
        return cls(parameters=sent, origin=replace(known, model=model_hash(sent)))

    @classmethod
    def _of_run(cls, run: RunFolder) -> Start:
        run.verify()
        stored = run.read_checkpoint()
        if stored is None or not run.last_round:
            raise StorageError(
                f"{run.path} has released no model yet. Start from a run that has finished a round."
            )
        released = released_from(stored[0], run.plan.training.iterate_average)
        account, sound = run.guarantee, run.void is None
        promised = None
        if account is not None and sound:
            proved = "proved" if account.proved else "NOT PROVED"
            promised = f"ε ≤ {rounded_up(account.epsilon)} at δ = {account.delta:g}, {proved}"
        origin = StartedFrom(
            model="",
            run=run.name,
            round=run.last_round,
            plan_hash=run.plan_hash,
            dataset=dataset_of(run.plan),
            guarantee=promised,
            no_ledger=run.header.no_ledger,
        )
        return cls.of_vector(released, origin)

    @property
    def hash(self) -> str:
        """What a plan calls it."""
        return self.origin.model

    def to_text(self) -> str:
        """The model as an operator sends it to the server."""
        sent = base64.b64encode(self.parameters.astype("<f4").tobytes()).decode()
        return json.dumps({"parameters": sent, "origin": asdict(self.origin)})

    @classmethod
    def from_text(cls, text: str) -> Start:
        """The inverse of `to_text`; the hash is computed anew."""
        try:
            entries = json.loads(text)
            raw = base64.b64decode(entries["parameters"], validate=True)
            vector = np.frombuffer(raw, dtype="<f4").astype(np.float64)
            origin = from_json(StartedFrom, entries["origin"], where="the starting model")
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise DataError(
                "the starting model cannot be read. Use a file of `sumus pretrain`, and the same "
                "release of Sumus everywhere."
            ) from None
        return cls.of_vector(vector, origin)

    def require_fit(self, design: NoiseDesign, *, void: str | None) -> None:
        """Refuse a model that the plan does not name, that does not fit it, or that may be used
        only by a run that promises nothing either.

        Args:
            void: why the run that begins has no guarantee, if it has none.
        """
        plan, dimension = design.plan, design.resolved.dimension
        if self.hash != plan.training.start_from:
            rule = f"is another model than the one that was given, {self.hash}"
            raise PlanError(_KEY, plan.training.start_from, rule, "Give the model of the plan.")
        if len(self.parameters) != dimension:
            rule = f"has {len(self.parameters)} parameters, the plan's model {dimension}"
            raise PlanError(_KEY, self.hash, rule, "Start from a run of the same model.")
        radius = design.algorithm.largest_weight_norm
        if not np.linalg.norm(self.parameters) <= radius:
            rule = f"must have norm at most {radius:g} for {plan.training.algorithm}"
            raise PlanError(_KEY, self.hash, rule, "Start from another model.")
        if self.origin.run is None or self.origin.guarantee is not None:
            return
        if void is None and plan.rules.private:
            raise GuaranteeError(
                f"{_KEY}: run {self.origin.run} has no guarantee, so what starts from it has none. "
                "Start from another run, or, if that model is public, give its model.pt."
            )


def find_start(plan: TrainingPlan, runs: Path) -> Start:
    """The model that a plan starts from, among what the runs of a folder have released last.

    Args:
        runs: with run folders in it, or with folders of run folders.
    """
    for path in _folders(runs):
        try:
            start = Start.read(path)
        except SumusError:
            continue  # another run, damaged or of another version, is none of this one's business
        if start.hash == plan.training.start_from:
            return start
    rule = f"is released by no run below {runs}"
    raise PlanError(_KEY, plan.training.start_from, rule, "Give it with --start-from RUN.")


def with_start(plan: TrainingPlan, start: Start) -> TrainingPlan:
    """The plan that says which model it starts from; refuses another one than it names already."""
    named = plan.training.start_from
    if named not in (None, start.hash):
        rule = f"is another model than that of --start-from, {start.hash}"
        raise PlanError(_KEY, named, rule, "Leave one of them out.")
    return plan.replace("training", start_from=start.hash)


def _folders(runs: Path) -> Iterator[Path]:
    """Run folders, the latest first."""
    found = [*runs.glob(f"*/{JOURNAL}"), *runs.glob(f"*/*/{JOURNAL}")]
    for journal in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        yield journal.parent


def _vector_of(path: Path) -> npt.NDArray[np.float64]:
    """All numbers of a file, in its order."""
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
        return torch.cat([each.reshape(-1).double() for each in state.values()]).numpy()
    except Exception as error:  # a file of somebody's raises whatever its parser does
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise DataError(
            f"{path} cannot be read as a model: {reason}. Give a model.pt that Sumus wrote, or a "
            "vector in .npy."
        ) from None
