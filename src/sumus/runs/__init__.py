"""`sumus.train`: parties, books and report tied together.

`run` trains in this process, `options` says how, `trained` is what is left; `server_run` is the
server's side of a run across machines; `starting` is the released model that
a run begins with, `public_start` makes one of made-up pictures, `finishing` ends both. `described` runs a plan that counts records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.parties import Simulation as Simulation
    from sumus.runs.callbacks import Callback as Callback
    from sumus.runs.described import describe as describe
    from sumus.runs.options import RunOptions as RunOptions
    from sumus.runs.plain_plan import without_noise as without_noise
    from sumus.runs.public_start import make_public_start as make_public_start
    from sumus.runs.run import train as train
    from sumus.runs.server_run import (
        existing_run as existing_run,
        finish as finish,
        is_finished as is_finished,
        is_over as is_over,
        open_run as open_run,
        parcel_of_run as parcel_of_run,
        release as release,
        start_of as start_of,
    )
    from sumus.runs.starting import (
        Start as Start,
        find_start as find_start,
        with_start as with_start,
    )
    from sumus.runs.trained import TrainedRun as TrainedRun

__getattr__, __dir__, __all__ = door(
    __name__,
    callbacks="Callback",
    described="describe",
    options="RunOptions",
    plain_plan="without_noise",
    public_start="make_public_start",
    run="Simulation train",
    server_run="existing_run finish is_finished is_over open_run parcel_of_run release start_of",
    starting="Start find_start with_start",
    trained="TrainedRun",
)
