"""A user's module as a pure function of one record, or a refusal.

Python code of a user runs on made-up records only. What it does with one record is recorded as a
graph of torch operators, and only that graph touches real records:

| step | module |
|---|---|
| a copy of the module is taken; chains of torch's own layers are built afresh | `own_model`, `chains` |
| made-up records of the right form | `made_up` |
| layers that mix records are refused by name | `isolation` |
| forward and gradient, repeated: same bits, nothing remembered, nothing drawn | `checks`, `held_state` |
| caches that depend on a record's shape are filled before | `warm_up` |
| one record's operators are recorded, each allowed, each constant owned | `recording`, `effects`, `constants` |
| last products of gradients are left undone, memory is counted | `undone`, `memory` |
| the recording is made to take chunks, products at wider widths where rows would differ | `chunks`, `aligned` |
| a loss of a user's own: one number, pure, of several records their sum or mean | `own_loss` |
| all of this once per module, loss and form | `certified` |
| the machine is tested: a record's bits do not depend on its company | `isolation` |
| weights are given as arguments, on any thread | `stateless` |
| torch computes on one thread | `one_thread` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.purity.certified import (
        CHUNK as CHUNK,
        RecordLoss as RecordLoss,
        certified_gradients as certified_gradients,
        certified_logits as certified_logits,
        examine as examine,
        examine_loss as examine_loss,
        try_out as try_out,
        verdict as verdict,
    )
    from sumus.purity.chains import (
        fresh_chain as fresh_chain,
        is_chain as is_chain,
        layers_of as layers_of,
    )
    from sumus.purity.checks import (
        bits_of as bits_of,
        require_apart as require_apart,
        require_pure as require_pure,
        same_bits as same_bits,
    )
    from sumus.purity.chunks import ChunkFunction as ChunkFunction, chunk_function as chunk_function
    from sumus.purity.isolation import (
        is_isolated as is_isolated,
        refuse_mixing_layers as refuse_mixing_layers,
    )
    from sumus.purity.made_up import (
        Form as Form,
        InputKind as InputKind,
        made_up_labels as made_up_labels,
    )
    from sumus.purity.one_thread import one_torch_thread as one_torch_thread
    from sumus.purity.own_model import (
        own_copy as own_copy,
        released_model as released_model,
        require_precision as require_precision,
    )
    from sumus.purity.recording import first_line as first_line, operators_only as operators_only
    from sumus.purity.stateless import call_with as call_with, named_parameters as named_parameters
    from sumus.purity.undone import (
        Lookup as Lookup,
        LookupAndProduct as LookupAndProduct,
        Patches as Patches,
        Product as Product,
        factor_names as factor_names,
        more_factor_names as more_factor_names,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    certified="CHUNK RecordLoss certified_gradients certified_logits examine examine_loss try_out verdict",
    chains="fresh_chain is_chain layers_of",
    checks="bits_of require_apart require_pure same_bits",
    chunks="ChunkFunction chunk_function",
    isolation="is_isolated refuse_mixing_layers",
    made_up="Form InputKind made_up_labels",
    one_thread="one_torch_thread",
    own_model="own_copy released_model require_precision",
    recording="first_line operators_only",
    stateless="call_with named_parameters",
    undone="Lookup LookupAndProduct Patches Product factor_names more_factor_names",
)
