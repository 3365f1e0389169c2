"""A user's module as a pure function of one record, or a refusal.

Python code of a user runs on made-up records only (`made_up`). What it does with one record is
recorded as a graph of torch operators (`recording`), checked for randomness, writes and state
(`effects`, `checks`, `held_state`, `constants`), and only that graph touches real records
(`chunk_function`, `certified`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.purity.certified import (
        CHUNK,
        RecordLoss,
        certified_gradients,
        certified_logits,
        examine,
        try_out,
        verdict,
    )
    from sumus.purity.chains import fresh_chain, is_chain, layers_of
    from sumus.purity.checks import bits_of, require_apart, require_pure, same_bits
    from sumus.purity.chunks import ChunkFunction, chunk_function
    from sumus.purity.isolation import is_isolated, refuse_mixing_layers
    from sumus.purity.made_up import Form, InputKind, made_up_labels
    from sumus.purity.own_model import own_copy, released_model, require_precision
    from sumus.purity.recording import first_line, operators_only
    from sumus.purity.stateless import call_with, named_parameters

__all__ = [
    "CHUNK",
    "ChunkFunction",
    "Form",
    "InputKind",
    "RecordLoss",
    "bits_of",
    "call_with",
    "certified_gradients",
    "certified_logits",
    "chunk_function",
    "examine",
    "first_line",
    "fresh_chain",
    "is_chain",
    "is_isolated",
    "layers_of",
    "made_up_labels",
    "named_parameters",
    "operators_only",
    "own_copy",
    "refuse_mixing_layers",
    "released_model",
    "require_apart",
    "require_precision",
    "require_pure",
    "same_bits",
    "try_out",
    "verdict",
]

__getattr__, __dir__ = door(
    __name__,
    certified="CHUNK RecordLoss certified_gradients certified_logits examine try_out verdict",
    chains="fresh_chain is_chain layers_of",
    checks="bits_of require_apart require_pure same_bits",
    chunks="ChunkFunction chunk_function",
    isolation="is_isolated refuse_mixing_layers",
    made_up="Form InputKind made_up_labels",
    own_model="own_copy released_model require_precision",
    recording="first_line operators_only",
    stateless="call_with named_parameters",
)
