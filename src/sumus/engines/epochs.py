"""A federation whose roster changes: a kit for whoever comes, none for whoever leaves, and the chain
of rosters for everybody.

The chain (`epochs.toml`) holds nothing secret: parties elsewhere copy it into KIT/sumus, and every
silo checks it by itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from sumus.engines.federation_folder import FederationFolder, finish_kit
from sumus.engines.kit import ADMIN, SERVER, Kit
from sumus.errors import EngineError
from sumus.files import replace_atomically
from sumus.parties import EPOCHS, Agreement, write_rosters
from sumus.secagg import RosterHistory

__all__ = ["change_roster"]


def change_roster(
    federation: FederationFolder,
    rosters: RosterHistory,
    *,
    agreement: Agreement | None,
    requests: Mapping[str, bytes],
) -> FederationFolder:
    """Put the latest roster into effect in the coordinator's folder.

    Args:
        federation: as it is.
        rosters: with the signatures that lead to the latest.
        agreement: a plan for the silos that are there from now on; every silo still has to approve
            it.
        requests: certificate requests of silos that come and keep their transport key to
            themselves.
    """
    before, changed = federation.roster, FederationFolder(federation.folder, rosters.current)
    admin = Kit.open(federation.kit(ADMIN), "admin")
    came = [name for name in changed.roster.names if name not in before.public_keys]
    for name in came:
        if changed.kit(name).exists():
            raise EngineError(
                f"{changed.kit(name)} exists already. Move the old kit of that name away."
            )
    for name in came:
        admin.engine.add_kit(changed, admin.address, name, requests)
        finish_kit(
            changed,
            name,
            engine=admin.engine_name,
            address=admin.address,
            identity=None,
            agreement=agreement,
        )
    for name in before.names:
        if name not in changed.roster.public_keys:
            admin.engine.drop_kit(changed, name)
            if changed.kit(name).exists():
                shutil.rmtree(changed.kit(name))
    for party in changed.parties:
        state = changed.state(party)
        if state.is_dir():
            replace_atomically(state / EPOCHS, rosters.to_text().encode())
            if agreement is not None and party != SERVER:
                replace_atomically(state / "plan.toml", agreement.plan.to_toml().encode())
    if agreement is not None:
        replace_atomically(changed.folder / "plan.toml", agreement.plan.to_toml().encode())
    write_rosters(changed.folder, rosters)
    return changed
