"""Bytes as Flower carries them: one array, which it cuts into pieces of a few megabytes.

A model of 10⁷ parameters is a message of 40 MB. Flower sends every piece of an array by itself, so
that no call grows with the model; values of other records go in one piece.
"""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, RecordDict

__all__ = ["body_of", "record_of"]

_RECORD, _BODY, _KIND = "sumus", "bytes", "sumus.bytes"


def record_of(body: bytes) -> RecordDict:
    """What carries these bytes."""
    array = Array(dtype="uint8", shape=(len(body),), stype=_KIND, data=body)
    return RecordDict({_RECORD: ArrayRecord({_BODY: array})})


def body_of(content: RecordDict) -> bytes:
    """The bytes that were carried; empty, and so no message of ours, if it is anything else."""
    try:
        array = content.array_records[_RECORD][_BODY]
    except KeyError:
        return b""
    return bytes(array.data) if array.stype == _KIND else b""
