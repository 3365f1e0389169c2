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
    from sumus.data.catalogue import CATALOGUE as CATALOGUE, named_set as named_set
    from sumus.data.catalogue_entry import NamedSet as NamedSet
    from sumus.data.cells import described as described, described_pool as described_pool
    from sumus.data.column_warnings import (
        WARNING as WARNING,
        listed as listed,
        looks_like as looks_like,
        names_a_person as names_a_person,
        names_an_identifier as names_an_identifier,
        repeats as repeats,
    )
    from sumus.data.columns import (
        KNOTS as KNOTS,
        Column as Column,
        NumberColumn as NumberColumn,
        TextColumn as TextColumn,
    )
    from sumus.data.decimal_comma import with_decimal_points as with_decimal_points
    from sumus.data.encoding import (
        ColumnRule as ColumnRule,
        Encoding as Encoding,
        encode_rows as encode_rows,
        undeclared_feature as undeclared_feature,
    )
    from sumus.data.fetched.prepare import prepare_fetched as prepare_fetched
    from sumus.data.fetched.recipe import Recipe as Recipe
    from sumus.data.fetched.tables import RECIPES as RECIPES
    from sumus.data.fetched.weights import (
        WEIGHTS as WEIGHTS,
        prepare_weights as prepare_weights,
        weights_folder as weights_folder,
    )
    from sumus.data.frames import columns_of as columns_of
    from sumus.data.given_tables import GivenTable as GivenTable, given_table as given_table
    from sumus.data.labels import (
        as_text as as_text,
        holds_numbers as holds_numbers,
        parse_numbers as parse_numbers,
        readable_numbers as readable_numbers,
    )
    from sumus.data.loading import (
        load as load,
        load_silo as load_silo,
        public_facts as public_facts,
    )
    from sumus.data.locations import cache_folder as cache_folder
    from sumus.data.object_arrays import array_of as array_of, features_of as features_of
    from sumus.data.objects import from_arrays as from_arrays
    from sumus.data.own_files import load_table as load_table
    from sumus.data.sets.cifar10 import cifar10_images as cifar10_images
    from sumus.data.sets.cifar10_features import (
        PREPARED_FEATURES as PREPARED_FEATURES,
        PreparedFeatures as PreparedFeatures,
    )
    from sumus.data.silos import (
        FeaturesFor as FeaturesFor,
        FederatedData as FederatedData,
        Records as Records,
        RowFeatures as RowFeatures,
        SiloRecords as SiloRecords,
    )
    from sumus.data.stated_counts import (
        OtherCountError as OtherCountError,
        hold_to_plan as hold_to_plan,
        left_out_lines as left_out_lines,
    )
    from sumus.data.synthetic import write_patients as write_patients
    from sumus.data.table import (
        OwnTable as OwnTable,
        label_columns as label_columns,
        open_table as open_table,
        table_pool as table_pool,
    )
    from sumus.data.table_files import data_folder as data_folder, locate as locate
    from sumus.data.table_reading import ReadingRules as ReadingRules, read_table as read_table

__getattr__, __dir__, __all__ = door(
    __name__,
    catalogue="CATALOGUE named_set",
    cells="described described_pool",
    column_warnings="WARNING listed looks_like names_a_person names_an_identifier repeats",
    columns="KNOTS Column NumberColumn TextColumn",
    decimal_comma="with_decimal_points",
    encoding="ColumnRule Encoding encode_rows undeclared_feature",
    fetched__prepare="prepare_fetched",
    fetched__recipe="Recipe",
    fetched__tables="RECIPES",
    fetched__weights="WEIGHTS prepare_weights weights_folder",
    frames="columns_of",
    given_tables="GivenTable given_table",
    labels="as_text holds_numbers parse_numbers readable_numbers",
    loading="load load_silo public_facts",
    locations="cache_folder",
    catalogue_entry="NamedSet",
    object_arrays="array_of features_of",
    objects="from_arrays",
    own_files="load_table",
    sets__cifar10="cifar10_images",
    sets__cifar10_features="PREPARED_FEATURES PreparedFeatures",
    silos="FeaturesFor FederatedData Records RowFeatures SiloRecords",
    stated_counts="OtherCountError hold_to_plan left_out_lines",
    synthetic="write_patients",
    table="OwnTable label_columns open_table table_pool",
    table_files="data_folder locate",
    table_reading="ReadingRules read_table",
)
