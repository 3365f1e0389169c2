"""Who has a run, by their own signatures: `receipts.jsonl` beside its journal, at the server, at the
operator and at every silo.

Two silos that signed for one parcel hold the same journal, evidence and model, whatever a server
tells either of them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path

from sumus.errors import PeerProtocolError, SumusError
from sumus.files import FORMATS, Chain
from sumus.parties.delivery_messages import DELIVERY, Receipt
from sumus.secagg import Roster, decode

__all__ = ["RECEIPTS", "keep_receipts", "read_receipt", "received_by"]

RECEIPTS = "receipts.jsonl"
_FORMAT = FORMATS["list of receipts"]


def read_receipt(message: bytes, rosters: Sequence[Roster], *, parcel: bytes) -> str:
    """The name of the silo that signed for a whole parcel; anything else is a
    `PeerProtocolError`.

    Args:
        rosters: under one of which it was signed.
    """
    for roster in reversed(rosters):
        try:
            receipt = decode(message, Receipt, roster=roster, kinds=DELIVERY)
        except SumusError:
            continue  # signed under another roster, or by nobody
        if receipt.whole and receipt.parcel == parcel:
            return roster.names[receipt.sender]
    raise PeerProtocolError("a receipt is not one of a silo for this run. Refuse the sender.")


def keep_receipts(folder: Path, parcel: bytes, receipts: Mapping[str, bytes]) -> None:
    """Add receipts to a run's folder, one for each silo and parcel.

    Args:
        receipts: signed, by the silo's name.
    """
    chain = Chain.of(_FORMAT, folder / RECEIPTS).refreshed()
    known = {(link.body.get("parcel"), link.body.get("silo")) for link in chain.links}
    fresh = [
        {
            "parcel": parcel.hex(),
            "silo": name,
            "message": base64.b64encode(message).decode(),
        }
        for name, message in sorted(receipts.items())
        if (parcel.hex(), name) not in known
    ]
    if fresh:
        chain.appended("receipt", *fresh)


def received_by(folder: Path, rosters: Sequence[Roster]) -> dict[str, tuple[str, ...]]:
    """Of every parcel that a run's folder has receipts of, in order, the silos that signed for it;
    a line that proves nothing counts for nobody.
    """
    found: dict[str, list[str]] = {}
    for link in Chain.of(_FORMAT, folder / RECEIPTS).refreshed().links:
        try:
            parcel = bytes.fromhex(str(link.body["parcel"]))
            message = base64.b64decode(str(link.body["message"]), validate=True)
            name = read_receipt(message, rosters, parcel=parcel)
        except (PeerProtocolError, KeyError, ValueError, binascii.Error):
            continue
        found.setdefault(parcel.hex(), []).append(name)
    return {parcel: tuple(sorted(set(names))) for parcel, names in found.items()}
