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
from sumus.plan import PLAN_START, TrainingPlan
from sumus.training import frozen_hash, released_from

__all__ = ["FROZEN_START", "Start", "find_start", "with_start"]

_KEY = "training.start_from"
FROZEN_START = "start.json"
"""In a run folder: the public start with the layers that a checkpoint does not hold."""


@final
@dataclass(frozen=True, kw_only=True)
class Start:
    """A model to begin with.

    Args:
        parameters: θ₀, rounded to what silos receive.
        origin: its hash and where it comes from.
        frozen: of a public start, the values of the layers that the plan does not train.
    """

    parameters: npt.NDArray[np.float64]
    origin: StartedFrom
    frozen: npt.NDArray[np.float64] | None = None

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
    def of_vector(
        cls,
        vector: npt.NDArray[np.float64],
        origin: StartedFrom | None = None,
        *,
        frozen: npt.NDArray[np.float64] | None = None,
    ) -> Start:
        """A model by its parameters.

        Args:
            origin: what is known of it; its hash is computed here.
            frozen: values of the layers that are not trained.
        """
        sent, known = _as_sent(vector), origin or StartedFrom(model="")
        if frozen is not None and (known.run is not None or known.public is None):
            raise DataError(
                "a starting model with layers that are not trained must be a public one. Use a "
                "file of `sumus pretrain`."
            )
        return cls(
            parameters=sent,
            origin=replace(known, model=model_hash(sent)),
            frozen=None if frozen is None else _as_sent(frozen),
        )

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

    def is_named_by(self, plan: TrainingPlan) -> bool:
        """Whether a plan starts from this model, by its hash or as what another plan's run has
        released.
        """
        return self.origin.is_named(plan.training.start_from)

    def to_text(self) -> str:
        """The model as an operator sends it to the server."""
        entries = {"parameters": _packed(self.parameters), "origin": asdict(self.origin)}
        if self.frozen is not None:
            entries["frozen"] = _packed(self.frozen)
        return json.dumps(entries)

    @classmethod
    def from_text(cls, text: str) -> Start:
        """The inverse of `to_text`; the hash is computed anew."""
        try:
            entries = json.loads(text)
            vector = _unpacked(entries["parameters"])
            frozen = _unpacked(entries["frozen"]) if "frozen" in entries else None
            origin = from_json(StartedFrom, entries["origin"], where="the starting model")
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise DataError(
                "the starting model cannot be read. Use a file of `sumus pretrain`, and the same "
                "release of Sumus everywhere."
            ) from None
        return cls.of_vector(vector, origin, frozen=frozen)

    def require_fit(self, design: NoiseDesign, *, void: str | None) -> None:
        """Refuse a model that the plan does not name, that does not fit it, or that may be used
        only by a run that promises nothing either.

        Args:
            void: why the run that begins has no guarantee, if it has none.
        """
        plan, dimension = design.plan, design.resolved.dimension
        if not self.is_named_by(plan):
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
    named = plan.training.start_from or ""
    of_plan = named.startswith(PLAN_START)
    for path in _folders(runs):
        try:
            if of_plan and not _has_ended(path, named.removeprefix(PLAN_START)):
                continue
            start = Start.read(path)
        except SumusError:
            continue  # another run, damaged or of another version, is none of this one's business
        if start.is_named_by(plan):
            return start
    rule = f"is {'finished' if of_plan else 'released'} by no run below {runs}"
    fix = "Run that plan to its end first, or give" if of_plan else "Give"
    raise PlanError(_KEY, named, rule, f"{fix} it with --start-from RUN.")


def with_start(plan: TrainingPlan, start: Start) -> TrainingPlan:
    """The plan that says which model it starts from; refuses another one than it names already."""
    named = plan.training.start_from
    if named is not None and start.is_named_by(plan) and start.frozen is None:
        return plan
    if named not in (None, start.hash):
        rule = f"is another model than that of --start-from, {start.hash}"
        raise PlanError(_KEY, named, rule, "Leave one of them out.")
    if start.frozen is None:
        return plan.replace("training", start_from=start.hash)
    kept = frozen_hash(start.frozen)
    if plan.training.tangent_layers is None or plan.training.frozen_layers not in (None, kept):
        rule = "has other layers than that of --start-from, or trains all of them"
        named = plan.training.frozen_layers
        raise PlanError(
            "training.frozen_layers",
            named,
            rule,
            "Make the start with `sumus pretrain` of this plan.",
        )
    return plan.replace("training", start_from=start.hash, frozen_layers=kept)


def _has_ended(folder: Path, plan_hash: str) -> bool:
    """Whether a folder holds the run of a plan, and it is over: its released model changes no
    more.
    """
    run = RunFolder.open(folder)
    return run.plan_hash == plan_hash and run.summary is not None


def _packed(vector: npt.NDArray[np.float64]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _unpacked(text: str) -> npt.NDArray[np.float64]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(np.float64)


def _as_sent(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rounded to what silos receive."""
    sent = np.asarray(vector, dtype=np.float32).astype(np.float64)
    if sent.ndim != 1 or not len(sent) or not np.isfinite(sent).all():
        raise DataError(
            "a starting model must be one vector of finite numbers. Give the file of another model."
        )
    return sent


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
