"""Files that survive a crash and tell when they were changed.

Durable and atomic writes (`atomic`), a hash chain of JSON lines (`chain`), values as typed JSON
(`values`), TOML tables under rules (`table`, `rules`), objects named `package.module:NAME`
(`named`), and machine code that is kept on disk until its source changes (`machine_code`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.files.atomic import (
        FileLock,
        append_durably,
        decode_arrays,
        encode_arrays,
        make_directory,
        name_of_file,
        read_bytes,
        replace_atomically,
    )
    from sumus.files.chain import Chain, Link
    from sumus.files.doors import door
    from sumus.files.machine_code import compiled
    from sumus.files.named import object_at
    from sumus.files.rules import (
        bit_count,
        choice,
        flag,
        name_or_place,
        names,
        number,
        optional,
        table,
        text,
        whole,
    )
    from sumus.files.tables import RuledTable, closest, key, parse_toml, read_toml
    from sumus.files.values import from_json, plain_json

__all__ = [
    "Chain",
    "FileLock",
    "Link",
    "RuledTable",
    "append_durably",
    "bit_count",
    "choice",
    "closest",
    "compiled",
    "decode_arrays",
    "door",
    "encode_arrays",
    "flag",
    "from_json",
    "key",
    "make_directory",
    "name_of_file",
    "name_or_place",
    "names",
    "number",
    "object_at",
    "optional",
    "parse_toml",
    "plain_json",
    "read_bytes",
    "read_toml",
    "replace_atomically",
    "table",
    "text",
    "whole",
]

__getattr__, __dir__ = door(
    __name__,
    atomic=(
        "FileLock append_durably decode_arrays encode_arrays make_directory name_of_file "
        "read_bytes replace_atomically"
    ),
    chain="Chain Link",
    doors="door",
    machine_code="compiled",
    named="object_at",
    rules="bit_count choice flag name_or_place names number optional table text whole",
    tables="RuledTable closest key parse_toml read_toml",
    values="from_json plain_json",
)
