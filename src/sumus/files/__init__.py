"""Files that survive a crash and tell when they were changed.

Durable and atomic writes (`atomic`), checked arrays (`arrays`), a hash chain of JSON lines (`chain`), values as typed JSON
(`values`), TOML tables under rules (`tables`, `rules`), objects named `package.module:NAME`
(`named`), pieces of bytes over a socket (`streams`), and machine code that is kept on disk until
its source changes (`machine_code`). `build` says which Sumus is installed, to the byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.files.arrays import (
        decode_arrays as decode_arrays,
        encode_arrays as encode_arrays,
    )
    from sumus.files.atomic import (
        FileLock as FileLock,
        FolderLock as FolderLock,
        append_durably as append_durably,
        kind_of_failure as kind_of_failure,
        make_directory as make_directory,
        name_of_file as name_of_file,
        read_bytes as read_bytes,
        replace_atomically as replace_atomically,
        sync_directory as sync_directory,
    )
    from sumus.files.build import build_of as build_of, files_digest as files_digest
    from sumus.files.chain import Chain as Chain, Link as Link
    from sumus.files.doors import door as door, keep_what_is_loaded as keep_what_is_loaded
    from sumus.files.formats import FORMATS as FORMATS, Format as Format
    from sumus.files.machine_code import compiled as compiled
    from sumus.files.named import object_at as object_at
    from sumus.files.rules import (
        bit_count as bit_count,
        choice as choice,
        digest as digest,
        digest_or_plan as digest_or_plan,
        flag as flag,
        name_or_place as name_or_place,
        named_choices as named_choices,
        names as names,
        number as number,
        optional as optional,
        table as table,
        text as text,
        weights as weights,
        whole as whole,
        word_or as word_or,
    )
    from sumus.files.streams import receive_sized as receive_sized, send_sized as send_sized
    from sumus.files.tables import (
        RuledTable as RuledTable,
        closest as closest,
        key as key,
        parse_toml as parse_toml,
        read_toml as read_toml,
        toml_value as toml_value,
    )
    from sumus.files.values import from_json as from_json, plain_json as plain_json

__getattr__, __dir__, __all__ = door(
    __name__,
    arrays="decode_arrays encode_arrays",
    atomic=(
        "FileLock FolderLock append_durably kind_of_failure make_directory name_of_file "
        "read_bytes replace_atomically sync_directory"
    ),
    build="build_of files_digest",
    chain="Chain Link",
    doors="door keep_what_is_loaded",
    formats="FORMATS Format",
    machine_code="compiled",
    named="object_at",
    rules=(
        "bit_count choice digest digest_or_plan flag name_or_place named_choices names number optional "
        "table text "
        "weights whole word_or"
    ),
    streams="receive_sized send_sized",
    tables="RuledTable closest key parse_toml read_toml toml_value",
    values="from_json plain_json",
)
