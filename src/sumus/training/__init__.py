"""What a silo computes and what the server does with a sum.

`local` has a local update per algorithm, `noise` draws every silo's share, `sampling` the batches,
`server` moves the model, `preconditioner` has the public map of a round, `pretraining` the public
start, `low_rank` puts adapters on a frozen model, `preparation` makes records and model ready and
says which rows are one
person's, `evaluation` measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.training.binding import bound_to as bound_to
    from sumus.training.evaluation import (
        SecureMetrics as SecureMetrics,
        evaluate as evaluate,
        evaluate_each as evaluate_each,
        outputs_of as outputs_of,
    )
    from sumus.training.frozen_layers import (
        frozen_hash as frozen_hash,
        frozen_parameters as frozen_parameters,
        keep_frozen as keep_frozen,
    )
    from sumus.training.local import local_updater as local_updater
    from sumus.training.local.plain_steps import plain_steps as plain_steps
    from sumus.training.local.update import (
        LocalUpdate as LocalUpdate,
        LocalUpdater as LocalUpdater,
        in_round as in_round,
    )
    from sumus.training.local.work import LocalWork as LocalWork
    from sumus.training.local_parameters import (
        LocalPart as LocalPart,
        at_home as at_home,
        knows_its_code as knows_its_code,
    )
    from sumus.training.low_rank import LowRank as LowRank, lora as lora, merged as merged
    from sumus.training.machine_arithmetic import (
        arithmetic as arithmetic,
        require_device_of as require_device_of,
        require_same as require_same,
    )
    from sumus.training.models import (
        OwnIntercept as OwnIntercept,
        SharedSlopes as SharedSlopes,
        flat_parameters as flat_parameters,
        linear_outputs as linear_outputs,
        load_flat as load_flat,
    )
    from sumus.training.noise import lifted_sum as lifted_sum
    from sumus.training.own_loss import GIVEN as GIVEN, own_loss as own_loss
    from sumus.training.preconditioner import Preconditioner as Preconditioner
    from sumus.training.preparation import (
        Prepared as Prepared,
        PublicFeatures as PublicFeatures,
        in_front as in_front,
        kept_features as kept_features,
        model_behind as model_behind,
        named_model as named_model,
        prepare as prepare,
        units_of as units_of,
    )
    from sumus.training.pretraining import public_start as public_start
    from sumus.training.sampling import poisson_batch as poisson_batch, select_silos as select_silos
    from sumus.training.server import Server as Server, released_from as released_from
    from sumus.training.trained_part import freeze_untrained as freeze_untrained

__getattr__, __dir__, __all__ = door(
    __name__,
    binding="bound_to",
    evaluation="SecureMetrics evaluate evaluate_each outputs_of",
    local="local_updater",
    local__plain_steps="plain_steps",
    local__update="LocalUpdate LocalUpdater in_round",
    local__work="LocalWork",
    local_parameters="LocalPart at_home knows_its_code",
    low_rank="LowRank lora merged",
    machine_arithmetic="arithmetic require_device_of require_same",
    models="OwnIntercept SharedSlopes flat_parameters linear_outputs load_flat",
    noise="lifted_sum",
    own_loss="GIVEN own_loss",
    preconditioner="Preconditioner",
    frozen_layers="frozen_hash frozen_parameters keep_frozen",
    preparation="Prepared PublicFeatures in_front kept_features model_behind named_model prepare units_of",
    pretraining="public_start",
    sampling="poisson_batch select_silos",
    server="Server released_from",
    trained_part="freeze_untrained",
)
