"""Checked arrays: an `.npz` file that tells when a byte of it was changed."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sumus.errors import StorageError
from sumus.files.formats import FORMATS

__all__ = ["decode_arrays", "encode_arrays"]

_FORMAT = FORMATS["checkpoint"]
_CHECKSUM_LABEL = _FORMAT.marked().encode()
_DIGEST_CHARACTERS = 64
_META = "meta.json"


def encode_arrays(arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> bytes:
    """Arrays and plain values as one `.npz` file that ends in the SHA-256 of everything before it.

    The checksum sits in the comment at the end of the zip archive, so `numpy.load` reads the file
    as it is. The same values give the same bytes.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise StorageError(
                    f"array {name!r} cannot be stored: it holds Python objects. Convert it to "
                    "numbers."
                )
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(
                    member, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False
                )
        archive.writestr(zipfile.ZipInfo(_META), json.dumps(meta, sort_keys=True, allow_nan=False))
        archive.comment = _CHECKSUM_LABEL + b"0" * _DIGEST_CHARACTERS
    with buffer.getbuffer() as content:  # in place: a model is not copied again
        digest = hashlib.sha256(content[:-_DIGEST_CHARACTERS]).hexdigest().encode()
        content[-_DIGEST_CHARACTERS:] = digest
    return buffer.getvalue()


def decode_arrays(content: bytes, path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """The arrays and plain values of `encode_arrays`. Any changed, missing or added byte is a
    `StorageError` naming `path`.
    """
    fix = "Restore the file from a backup, or start a new run."
    body, digest = memoryview(content)[:-_DIGEST_CHARACTERS], content[-_DIGEST_CHARACTERS:]
    if bytes(body[-len(_CHECKSUM_LABEL) :]) != _CHECKSUM_LABEL:
        end = bytes(body[-len(_FORMAT.marked(99)) :])
        other = _FORMAT.other(lambda mark: end.endswith(mark.encode()))
        if other is not None:
            raise _FORMAT.refusal(path, other)
        raise StorageError(
            f"{path} is not a complete checkpoint ({len(content)} bytes without a checksum at the "
            f"end). {fix}"
        )
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise StorageError(f"{path} is damaged: its SHA-256 does not match its content. {fix}")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            meta = json.loads(archive.read(_META))
            arrays = {}
            for name in archive.namelist():
                if name != _META:
                    stored = np.lib.format.read_array(
                        io.BytesIO(archive.read(name)), allow_pickle=False
                    )
                    arrays[name.removesuffix(".npy")] = stored
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise StorageError(f"{path} is not a checkpoint: {error}. {fix}") from None
    return arrays, meta
