"""START HERE: both ends of a round, for every transport.

`federation` is the round, `server` and `silo` its two ends, `sums` the ways to add up, `wire` the
frames between them, `agreement` what both compute from the plan, `memory` what a silo keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.parties.agreement import Agreement, agree_on
    from sumus.parties.entries import RoundFacts, record_of, restore, summary_of, write_model
    from sumus.parties.federation import Federation, RoundOutcome, Vanishing
    from sumus.parties.memory import SiloState
    from sumus.parties.releases import LedgerReleases
    from sumus.parties.server import Patience, ServerParty, measurement_asked
    from sumus.parties.silo import SiloParty
    from sumus.parties.site import Site, approve, open_party, require_unchanged, settle
    from sumus.parties.sums import (
        Aggregator,
        SecureAggregation,
        TrustedAggregation,
        round_identifier,
    )

__all__ = [
    "Aggregator",
    "Agreement",
    "Federation",
    "LedgerReleases",
    "Patience",
    "RoundFacts",
    "RoundOutcome",
    "SecureAggregation",
    "ServerParty",
    "SiloParty",
    "SiloState",
    "Site",
    "TrustedAggregation",
    "Vanishing",
    "agree_on",
    "approve",
    "measurement_asked",
    "open_party",
    "record_of",
    "require_unchanged",
    "restore",
    "round_identifier",
    "settle",
    "summary_of",
    "write_model",
]

__getattr__, __dir__ = door(
    __name__,
    agreement="Agreement agree_on",
    entries="RoundFacts record_of restore summary_of write_model",
    federation="Federation RoundOutcome Vanishing",
    memory="SiloState",
    releases="LedgerReleases",
    server="Patience ServerParty measurement_asked",
    silo="SiloParty",
    site="Site approve open_party require_unchanged settle",
    sums="Aggregator SecureAggregation TrustedAggregation round_identifier",
)
