"""Records and what is public about them.

    data = load(plan)                    # every silo, split into training, validation and test parts
    facts = public_facts(plan)           # silos, shapes, classes, record bounds; cheap, without loading a named data set
    data = from_arrays([(x0, y0), …])    # python objects: arrays, tensors, datasets
    one = load_silo(plan, "Bergen")      # what one organisation loads on its own machine

Needs numpy only; CSV files need nothing else, Parquet files need pyarrow, the digits need
scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.data.catalogue import CATALOGUE, NamedSet, named_set
    from sumus.data.column_warnings import WARNING, listed
    from sumus.data.columns import TextColumn
    from sumus.data.images import FEATURE_PIXELS, cifar10_images, features_file
    from sumus.data.income import prepare_income
    from sumus.data.loading import load, load_silo, public_facts
    from sumus.data.locations import cache_folder
    from sumus.data.objects import UNNAMED, from_arrays
    from sumus.data.silos import FederatedData, Records, SiloRecords
    from sumus.data.stated_counts import OtherCountError, hold_to_plan
    from sumus.data.synthetic import write_patients
    from sumus.data.table import OwnTable, table_pool
    from sumus.data.table_files import data_folder, locate

__all__ = [
    "CATALOGUE",
    "FEATURE_PIXELS",
    "UNNAMED",
    "WARNING",
    "FederatedData",
    "NamedSet",
    "OtherCountError",
    "OwnTable",
    "Records",
    "SiloRecords",
    "TextColumn",
    "cache_folder",
    "cifar10_images",
    "data_folder",
    "features_file",
    "from_arrays",
    "hold_to_plan",
    "listed",
    "load",
    "load_silo",
    "locate",
    "named_set",
    "prepare_income",
    "public_facts",
    "table_pool",
    "write_patients",
]

__getattr__, __dir__ = door(
    __name__,
    catalogue="CATALOGUE NamedSet named_set",
    column_warnings="WARNING listed",
    columns="TextColumn",
    images="FEATURE_PIXELS cifar10_images features_file",
    income="prepare_income",
    loading="load load_silo public_facts",
    locations="cache_folder",
    objects="UNNAMED from_arrays",
    silos="FederatedData Records SiloRecords",
    stated_counts="OtherCountError hold_to_plan",
    synthetic="write_patients",
    table="OwnTable table_pool",
    table_files="data_folder locate",
)
