"""START HERE: both ends of a round, for every transport.

`federation` is the round, `server` and `silo` its two ends, `sums` the ways to add up, `wire` the
frames between them, `agreement` what both compute from the plan, `memory` what a silo keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.parties.agreement import Agreement as Agreement, agree_on as agree_on
    from sumus.parties.driver import Driver as Driver
    from sumus.parties.entries import (
        RoundFacts as RoundFacts,
        record_of as record_of,
        restore as restore,
        summary_of as summary_of,
        write_model as write_model,
    )
    from sumus.parties.federation import (
        Federation as Federation,
        RoundOutcome as RoundOutcome,
        Vanishing as Vanishing,
    )
    from sumus.parties.memory import SiloState as SiloState
    from sumus.parties.releases import LedgerReleases as LedgerReleases
    from sumus.parties.server import (
        Patience as Patience,
        ServerParty as ServerParty,
        measurement_asked as measurement_asked,
    )
    from sumus.parties.silo import SiloParty as SiloParty
    from sumus.parties.site import (
        Site as Site,
        approve as approve,
        open_party as open_party,
        require_unchanged as require_unchanged,
        settle as settle,
    )
    from sumus.parties.sums import (
        Aggregator as Aggregator,
        SecureAggregation as SecureAggregation,
        TrustedAggregation as TrustedAggregation,
        round_identifier as round_identifier,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    agreement="Agreement agree_on",
    driver="Driver",
    entries="RoundFacts record_of restore summary_of write_model",
    federation="Federation RoundOutcome Vanishing",
    memory="SiloState",
    releases="LedgerReleases",
    server="Patience ServerParty measurement_asked",
    silo="SiloParty",
    site="Site approve open_party require_unchanged settle",
    sums="Aggregator SecureAggregation TrustedAggregation round_identifier",
)
