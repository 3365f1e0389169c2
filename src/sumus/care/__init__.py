"""Keeping parties well: what is broken and what mends it (`doctor`), a vault in one file (`backup`),
and out of it again (`restore`).

`finding` is one line of a diagnosis, `installation`, `machine`, `kit_health`, `vault_health` and
`server_health` are what is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.care.backup import (
        Backup as Backup,
        BackupNote as BackupNote,
        back_up as back_up,
        last_backup as last_backup,
        read_backup as read_backup,
        require_backup as require_backup,
    )
    from sumus.care.doctor import Diagnosis as Diagnosis, diagnose as diagnose
    from sumus.care.finding import Finding as Finding
    from sumus.care.restore import (
        Charge as Charge,
        Restoration as Restoration,
        rehearse as rehearse,
        require_empty as require_empty,
        restore_vault as restore_vault,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    backup="Backup BackupNote back_up last_backup read_backup require_backup",
    doctor="Diagnosis diagnose",
    finding="Finding",
    restore="Charge Restoration rehearse require_empty restore_vault",
)
