"""What a run folder says of its model beside the weights: `model.json`.

A weight means nothing without the rules by which a row became features and the names by which an
output is told. They are public: none of them holds a record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, final

import torch
from torch import nn

from sumus import __version__
from sumus.books import MODEL_FACTS, RunFolder
from sumus.data import Encoding
from sumus.errors import StorageError
from sumus.files import FORMATS, from_json, plain_json
from sumus.plan import TrainingPlan
from sumus.tasks import LabelFacts

__all__ = ["ModelFacts", "odd_state", "state_hash"]

_FORMAT = FORMATS["model's facts"]


@final
@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Everything besides weights and plan that a prediction needs, or that a reader should know.

    Args:
        format: of the file.
        sumus: the version that wrote it.
        task: `training.task`.
        labels: names of classes, bounds of numbers, cut points of times.
        shape: of one record in front of the plan's features.
        encoding: by which a row became such a record; None: records were arrays.
        model: as the plan names it.
        features: `training.features`, the public map in front of the model.
        feature_bound: R, where records are scaled to it; None: they are not.
        feature_norm: L, below which lengths are kept.
        model_hash: what `training.start_from` of a later plan calls the model.
        state_hash: of all tensors in `model.pt`, those that were not trained included.
    """

    format: int = _FORMAT.version
    sumus: str
    task: str
    labels: LabelFacts
    shape: tuple[int, ...]
    encoding: Encoding | None
    model: str
    features: str
    feature_bound: float | None
    feature_norm: float | None
    model_hash: str
    state_hash: str

    @classmethod
    def of(
        cls,
        plan: TrainingPlan,
        module: nn.Module,
        *,
        labels: LabelFacts,
        shape: tuple[int, ...],
        encoding: Encoding | None,
        model_hash: str,
    ) -> Self:
        """Of a model that a plan has trained; arguments as above."""
        training, bounded = plan.training, plan.rules.bounded_records
        return cls(
            sumus=__version__,
            task=training.task,
            labels=labels,
            shape=shape,
            encoding=encoding,
            model=training.model,
            features=training.features,
            feature_bound=training.feature_bound if bounded else None,
            feature_norm=training.feature_norm if bounded else None,
            model_hash=model_hash,
            state_hash=state_hash(module.state_dict()),
        )

    def to_bytes(self) -> bytes:
        """The file."""
        text = json.dumps(plain_json(asdict(self)), indent=2, ensure_ascii=False)
        return (text + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes, path: Path) -> Self:
        """The inverse, strictly; a file of a later version is named as such."""
        entries = _FORMAT.require_field(path, content, fix="Restore it from a backup.")
        return from_json(cls, entries, where=str(path))

    @classmethod
    def of_run(cls, run: RunFolder) -> Self:
        """Those of a finished run.

        Guarantee: what the run wrote when it finished, or a `StorageError`.
        """
        content = run.read_model_facts()
        if content is None:
            version = run.versions.get("sumus", "?")
            raise StorageError(
                f"{run.path} was finished by sumus {version}, which wrote no {MODEL_FACTS}: how "
                "rows are encoded is not known. Train it with this version."
            )
        return cls.from_bytes(content, run.path / MODEL_FACTS)


def state_hash(state: Mapping[str, Any]) -> str:
    """SHA-256 of a module's state: names, kinds, shapes and values of its tensors, and whatever
    else it keeps (`get_extra_state`).

    Guarantee: states with one hash are alike, unless there is something in them that is neither a
        tensor nor plain (numbers, texts, bytes, lists, tuples, dictionaries): `odd_state` names it.
    """
    digest = hashlib.sha256(b"sumus-state-v1")
    for name in sorted(state):
        tensor = state[name]
        if isinstance(tensor, torch.Tensor):
            _add_tensor(digest.update, name, tensor)
        else:
            _add_plain(digest.update, name, tensor)
    return f"sha256:{digest.hexdigest()}"


def odd_state(state: Mapping[str, Any]) -> str | None:
    """The first entry whose values no hash stands for; None: there is none."""
    return next((name for name in sorted(state) if not _is_hashed(state[name])), None)


def _is_hashed(value: Any) -> bool:
    if isinstance(value, torch.Tensor) or type(value) in _SCALARS:
        return True
    if type(value) in (list, tuple):
        return all(map(_is_hashed, value))
    if isinstance(value, dict):
        return all(_is_hashed(part) for pair in value.items() for part in pair)
    return False


_SCALARS: Final = (type(None), bool, int, float, complex, str, bytes)


def _add_tensor(add: Callable[[bytes], None], name: str, tensor: torch.Tensor) -> None:
    plain = tensor.detach().cpu().contiguous()
    add(repr((name, str(plain.dtype), tuple(plain.shape))).encode())
    add(plain.reshape(-1).view(torch.uint8).numpy().tobytes())


def _add_plain(add: Callable[[bytes], None], name: str, value: Any) -> None:
    """One entry after the other, each with its kind and its length, so that no two read alike."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        _add_tensor(add, name, value)
    elif type(value) in _SCALARS:
        add(repr((name, kind, value)).encode())
    elif isinstance(value, list | tuple | dict):
        add(repr((name, kind, len(value))).encode())
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            _add_plain(add, "key", key)
            _add_plain(add, "value", part)
    else:
        add(repr((name, kind)).encode())
