"""START HERE (`round`): both ends of a round, for every transport.

`round` is the algorithm on one page, `server` and `silo` are its two ends, `secure_sum` and
`trusted_sum` the ways to add up, `in_process` plays all silos in one process. `wire` has the frames
between the ends, `agreement` what both compute from the plan, `memory` what a silo keeps,
`watchers` who is told, `entries` what is written down, `site` a silo's folder, `vault` its process,
`unlocking` what opens a protected key, `restored` what it has forgotten, `retiring` its end.

A run goes back to its silos as a `parcel`: `handing_out` sends it, `inbox` takes it, `checked_run`
says whether a silo believes it, `received` is where its people find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.parties.agreement import (
        Agreement as Agreement,
        agree_on as agree_on,
        declared_facts as declared_facts,
    )
    from sumus.parties.approvals import (
        ApprovedPlans as ApprovedPlans,
        approve as approve,
        notice_plans as notice_plans,
        of_other_versions as of_other_versions,
        replace_policy as replace_policy,
        require_known as require_known,
        withdraw as withdraw,
    )
    from sumus.parties.driver import Driver as Driver
    from sumus.parties.entries import (
        NO_LEDGER_HERE as NO_LEDGER_HERE,
        PUBLIC_SEED as PUBLIC_SEED,
        restore as restore,
        summary_of as summary_of,
        write_model as write_model,
    )
    from sumus.parties.evidence import (
        Evidence as Evidence,
        EvidenceAudit as EvidenceAudit,
        audit_evidence as audit_evidence,
    )
    from sumus.parties.handing_out import (
        HandedOut as HandedOut,
        hand_out as hand_out,
        parcel_of as parcel_of,
    )
    from sumus.parties.in_process import (
        InProcess as InProcess,
        SumsInProcess as SumsInProcess,
        federation_in_process as federation_in_process,
    )
    from sumus.parties.keyed_memory import RunSecret as RunSecret, Simulation as Simulation
    from sumus.parties.memory import SiloState as SiloState, spent_session as spent_session
    from sumus.parties.parcel import Parcel as Parcel
    from sumus.parties.rebuilding import weights_of as weights_of
    from sumus.parties.receipts import (
        RECEIPTS as RECEIPTS,
        keep_receipts as keep_receipts,
        received_by as received_by,
    )
    from sumus.parties.received import DeliveryNote as DeliveryNote, Shelf as Shelf
    from sumus.parties.restored import (
        RESTORED as RESTORED,
        Restored as Restored,
        last_sum as last_sum,
        sums_of as sums_of,
    )
    from sumus.parties.retiring import require_not_retired as require_not_retired, retire as retire
    from sumus.parties.rosters import (
        EPOCHS as EPOCHS,
        ROSTER as ROSTER,
        pinned as pinned,
        read_rosters as read_rosters,
        rosters_of as rosters_of,
        write_rosters as write_rosters,
    )
    from sumus.parties.round import (
        Invited as Invited,
        RoundOutcome as RoundOutcome,
        Summed as Summed,
        one_round as one_round,
    )
    from sumus.parties.secure_sum import Patience as Patience, SecureSum as SecureSum
    from sumus.parties.seen_ledger import SeenLedger as SeenLedger
    from sumus.parties.server import (
        ServerParty as ServerParty,
        measurement_asked as measurement_asked,
    )
    from sumus.parties.silo import SiloParty as SiloParty
    from sumus.parties.site import (
        Site as Site,
        open_party as open_party,
        own_releases as own_releases,
        releases_on as releases_on,
        require_unchanged as require_unchanged,
        run_on_ledger as run_on_ledger,
        settle as settle,
        silo_of as silo_of,
        vault_folder as vault_folder,
    )
    from sumus.parties.sums import (
        model_hash as model_hash,
        round_identifier as round_identifier,
        sequence_of as sequence_of,
    )
    from sumus.parties.trail_audit import (
        TrailAudit as TrailAudit,
        audit_server as audit_server,
        audit_vault as audit_vault,
        noted_heads as noted_heads,
    )
    from sumus.parties.trails import (
        digest_of as digest_of,
        notice_server as notice_server,
        notice_vault as notice_vault,
        server_trail as server_trail,
        silo_trail as silo_trail,
        vault_memory as vault_memory,
    )
    from sumus.parties.unlocking import (
        CREDENTIAL as CREDENTIAL,
        credential_passphrase as credential_passphrase,
        handed_passphrase as handed_passphrase,
        needs_passphrase as needs_passphrase,
    )
    from sumus.parties.vanishing import DropOuts as DropOuts
    from sumus.parties.vault import (
        Vault as Vault,
        listen as listen,
        most_bytes as most_bytes,
        vault_arguments as vault_arguments,
    )
    from sumus.parties.watchers import SimulationMetrics as SimulationMetrics, Telling as Telling
    from sumus.parties.work import work_on as work_on

__getattr__, __dir__, __all__ = door(
    __name__,
    agreement="Agreement agree_on declared_facts",
    approvals=(
        "ApprovedPlans approve notice_plans of_other_versions replace_policy require_known withdraw"
    ),
    driver="Driver",
    entries="NO_LEDGER_HERE PUBLIC_SEED restore summary_of write_model",
    evidence="Evidence EvidenceAudit audit_evidence",
    handing_out="HandedOut hand_out parcel_of",
    in_process="InProcess SumsInProcess federation_in_process",
    keyed_memory="RunSecret Simulation",
    memory="SiloState spent_session",
    parcel="Parcel",
    rebuilding="weights_of",
    receipts="RECEIPTS keep_receipts received_by",
    received="DeliveryNote Shelf",
    restored="RESTORED Restored last_sum sums_of",
    retiring="require_not_retired retire",
    rosters="EPOCHS ROSTER pinned read_rosters rosters_of write_rosters",
    round="Invited RoundOutcome Summed one_round",
    unlocking="CREDENTIAL credential_passphrase handed_passphrase needs_passphrase",
    secure_sum="Patience SecureSum",
    seen_ledger="SeenLedger",
    server="ServerParty measurement_asked",
    silo="SiloParty",
    work="work_on",
    site=(
        "Site open_party own_releases releases_on require_unchanged run_on_ledger settle "
        "silo_of vault_folder"
    ),
    sums="model_hash round_identifier sequence_of",
    trail_audit="TrailAudit audit_server audit_vault noted_heads",
    trails="digest_of notice_server notice_vault server_trail silo_trail vault_memory",
    vanishing="DropOuts",
    vault="Vault listen most_bytes vault_arguments",
    watchers="SimulationMetrics Telling",
)
