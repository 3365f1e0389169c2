"""Records and what is public about them.

    data = load(plan)                    # every silo, split into training, validation and test parts
    facts = public_facts(plan)           # silos, shapes, classes, record bounds; cheap, without loading a named data set
    data = from_arrays([(x0, y0), …])    # python objects: arrays, tensors, datasets
    one = load_silo(plan, "Bergen")      # what one organisation loads on its own machine

Needs numpy only; CSV files need nothing else, Parquet files need pyarrow, the digits need scikit-learn.
"""

from __future__ import annotations

from sumus.data.loading import load, load_silo, public_facts
from sumus.data.objects import from_arrays
from sumus.data.silos import FederatedData, PublicFacts, Records, SiloRecords
from sumus.data.stated_counts import hold_to_plan
from sumus.data.table_files import data_folder

__all__ = [
    "FederatedData",
    "PublicFacts",
    "Records",
    "SiloRecords",
    "data_folder",
    "from_arrays",
    "hold_to_plan",
    "load",
    "load_silo",
    "public_facts",
]
