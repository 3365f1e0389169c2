"""`sumus join`: take part in a federation as a silo, under this silo's own policy."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import typer
from rich.console import Console

from sumus.cli.approving import show_plan
from sumus.cli.logs import AuditTo, LogFile, LogFormat, LogLevel, leave_log
from sumus.cli.notifying import Notify, NotifyWhen, leave_notify, refuse_unheeded
from sumus.cli.passphrases import PassphraseFile
from sumus.cli.terminal import screen
from sumus.cli.watching import Watch, WatchPort
from sumus.engines import TRANSPORT_KEY
from sumus.errors import DataError, PolicyError, StorageError
from sumus.files import read_bytes, read_toml

if TYPE_CHECKING:
    from sumus.books import Policy
    from sumus.engines import Kit
    from sumus.parties import Site
    from sumus.plan import TrainingPlan
    from sumus.secagg import Identity, Roster, RosterHistory

__all__ = ["join_app"]

join_app = typer.Typer(add_completion=False)


@join_app.command()
def join_command(
    kit: Annotated[Path, typer.Argument(help="This silo's kit, as it came from the coordinator.")],
    data: Annotated[
        str,
        typer.Option(
            help="CSV or Parquet file with this silo's records (for trials: the name of a data "
            "set)."
        ),
    ],
    policy: Annotated[Path, typer.Option(help="This silo's own policy.")],
    plan: Annotated[
        list[Path] | None,
        typer.Option(help="A plan that this silo approves; repeatable. Omitted: the kit's."),
    ] = None,
    identity: Annotated[
        Path | None, typer.Option(help="NAME.key of `sumus keys new`; kept after the first time.")
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            help=f"NAME{TRANSPORT_KEY} of `sumus keys new`. Omitted: the one beside --identity; kept "
            "in the kit after the first time."
        ),
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            help="The roster fingerprint that all silos have compared, where the policy does not "
            "name it; kept after the first time."
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
    vault: Annotated[
        Path | None,
        typer.Option(
            help="Folder for everything secret of this silo. Omitted: below the folder of the "
            "ledgers."
        ),
    ] = None,
    received: Annotated[
        Path | None,
        typer.Option(
            help="Folder for models and reports of runs that are handed out, readable by whoever "
            "may read it. Omitted: in the vault."
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(help="Unix user that runs the engine and can read neither vault nor data."),
    ] = None,
    units: Annotated[
        Path | None,
        typer.Option(help="Write units for systemd into this folder instead of starting."),
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Write the vault, approve the plans, and end: vault and relay are started "
            "otherwise, for example in containers.",
        ),
    ] = False,
    watch: Watch = False,
    watch_port: WatchPort = 0,
    notify: Notify = None,
    alert: NotifyWhen = None,
    new_ledger: Annotated[
        bool,
        typer.Option(
            "--new-ledger", help="Begin at ε = 0 although this silo's ledger is gone or cut."
        ),
    ] = False,
    never_run: Annotated[
        bool,
        typer.Option(
            "--never-run",
            help="In a vault that was restored: this silo has never run the plans that its backup "
            "does not know.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Check everything, say what would be agreed to, write nothing, and end."
        ),
    ] = False,
    log: LogFile = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    audit_to: AuditTo = None,
) -> None:
    """Join a federation: runs until it is stopped, and starts again what dies. Keys, records and
    ledger stay in a process of their own, the vault; the engine's process only relays bytes.
    """
    from sumus.books import Policy, state_directory
    from sumus.cli.dataset_total import ledger_text
    from sumus.cli.keys import fingerprint as shown_fingerprint
    from sumus.cli.pinning import pinned_text, require_pinned
    from sumus.engines import Kit, certificates_in
    from sumus.parties import (
        SeenLedger,
        Site,
        digest_of,
        require_known,
        require_unchanged,
        silo_trail,
    )
    from sumus.plan import TrainingPlan

    if units is not None or prepare:
        monitors = "`sumus doctor SILO --json` is for monitors."
        refuse_unheeded(monitors, watch=watch, notify=notify, alert=alert)
        logs = {"log_level": log_level, "log_format": log_format, "audit_to": audit_to}
        place = None if log is None else str(log)
        refuse_unheeded("the vault logs into its own folder.", log=place, **logs)
    console, member = screen(), _Member.of(Kit.open(kit, "silo"), identity, vault, passphrase_file)
    if not check:
        from sumus.engines import require_free

        require_free(kit, member.vault)
    kept = member.vault / "policy.toml"
    policy_text = pinned_text(read_toml(policy, "policy"), fingerprint, kept)
    rules = Policy.from_toml(policy_text)
    source = str(Path(data).resolve()) if Path(data).exists() else data
    site = Site(data=source, ledgers=state_directory())
    member.require_no_ledger_in_kit()
    seen = SeenLedger(member.vault, site.ledger)
    plans = [TrainingPlan.load(path) for path in plan] if plan else [member.proposed(rules)]
    console.print(f"silo                {member.identity.name}")
    console.print(f"roster fingerprint  {shown_fingerprint(member.roster)}", soft_wrap=True)
    if not check or rules.roster_fingerprint is not None:
        require_pinned(rules, member.rosters)
    if not new_ledger:
        seen.require_whole()
    console.print(ledger_text(site.ledger))
    shown = [
        show_plan(
            console,
            approved,
            silo=member.identity.name,
            members=member.roster.names,
            where="the kit's roster",
            site=site,
            rules=rules,
        )
        for approved in plans
    ]
    require_known(member.vault, shown, never_run=never_run, write=False)
    own_key = tls_key or _beside(identity)
    remark = member.kit.engine.complete(kit, member.identity.name, own_key, write=not check)
    if remark is not None:
        console.print(f"  notice       {remark}", markup=False, soft_wrap=True)
    if check:
        require_unchanged(member.vault, identity=member.identity, roster=member.rosters)
        _end_check(rules, member.roster)
        return
    from sumus.engines import silo_command, write_units  # need psutil, which `--check` does not

    member.settle(source, rules, policy_text, received)
    if new_ledger:
        seen.forget(silo_trail(member.vault))
    member.approve(plans, site, rules, never_run=never_run)
    certificates = digest_of(*map(read_bytes, certificates_in(kit)))
    silo_trail(member.vault).notice(certificates=certificates)
    records = Path(source) if site.is_file else None
    if units is not None:
        written = write_units(
            units,
            kit=kit,
            vault=member.vault,
            ledgers=state_directory(),
            records=records,
            user=user,
            received=received,
            protected=member.passphrase is not None,
        )
        console.print("\n".join(written), soft_wrap=True, markup=False)
        return
    if prepare:
        console.print(f"prepared; the vault is {member.vault}", soft_wrap=True, markup=False)
        return
    secret = [member.vault, state_directory(), records, identity]
    relaying = _separated(console, user, kit, [path for path in secret if path is not None])
    console.print(f"joining; logs and refusals in {member.vault}", soft_wrap=True)
    leave_log(log, log_level, log_format, audit_to)
    leave_notify(notify, alert)
    page = watch_port if watch else None
    command = silo_command(kit, member.vault, user=relaying, watch_port=page)
    if member.passphrase is not None:
        _put_on_standard_input(member.passphrase)
    os.execv(command[0], command)  # noqa: S606 - what stays holds neither key nor record


@final
@dataclass(frozen=True, kw_only=True)
class _Member:
    """A silo of a federation: its kit, who it is, who is who, and where it keeps what is secret."""

    kit: Kit
    identity: Identity
    key_text: str = field(repr=False)
    passphrase: bytes | None = field(repr=False)
    rosters: RosterHistory
    vault: Path

    @classmethod
    def of(
        cls, kit: Kit, identity: Path | None, vault: Path | None, passphrase_file: Path | None
    ) -> _Member:
        """As the kit's roster says, with the key that was given, kept by the vault or, in a trial,
        brought by the kit.
        """
        from sumus.cli.passphrases import opened_identity
        from sumus.parties import read_rosters, vault_folder

        rosters = read_rosters(kit.state)
        folder = (vault or vault_folder(rosters.first, kit.party)).absolute()
        kept = folder / "identity.key"
        brought = kept if kept.exists() else kit.state / "identity.key"
        text = _text(identity or brought, "--identity")
        me, passphrase = opened_identity(text, passphrase_file)
        if me.name != kit.party:
            raise DataError(
                f"the kit is {kit.party}'s, the identity {me.name}'s. Join with {kit.party}.key, or "
                f"with the kit of {me.name}."
            )
        return cls(
            kit=kit,
            identity=me,
            key_text=text,
            passphrase=passphrase,
            rosters=rosters,
            vault=folder,
        )

    @property
    def roster(self) -> Roster:
        """Who is who now."""
        return self.rosters.current

    def require_no_ledger_in_kit(self) -> None:
        """What was entered into a ledger below the kit must not be forgotten."""
        from sumus.books import state_directory

        for ledger in sorted(self.kit.state.glob("ledger-*.jsonl")):
            raise StorageError(
                f"{ledger} counts releases, and ledgers are kept in {state_directory()}. Run: sumus "
                f"ledger move {ledger}"
            )

    def proposed(self, rules: Policy) -> TrainingPlan:
        """The plan that came with the kit: somebody else's choice, so the silo's policy must name
        it.
        """
        from sumus.plan import TrainingPlan

        path = self.kit.state / "plan.toml"
        if not path.exists():
            raise DataError("the kit brings no plan. Give the plan this silo approves with --plan.")
        plan = TrainingPlan.load(path)
        if plan.hash not in rules.allowed_plan_hashes:
            fix = (
                f'Read {path}, then add "{plan.hash}" to allowed_plan_hashes, or join with --plan '
                f"{path}."
            )
            raise PolicyError(
                f"the kit brings plan {plan.hash[:8]}, which this silo's policy does not name. {fix}"
            )
        return plan

    def settle(self, source: str, rules: Policy, policy_text: str, received: Path | None) -> None:
        """Write the vault; a key that the kit brought is in the vault only from then on."""
        from sumus.books import state_directory
        from sumus.parties import settle

        state_directory().mkdir(parents=True, exist_ok=True, mode=0o700)
        settle(
            self.vault,
            identity=self.identity,
            roster=self.rosters,
            data=source,
            policy=rules,
            policy_text=policy_text,
            received=received,
            key_text=self.key_text,
        )
        (self.kit.state / "identity.key").unlink(missing_ok=True)

    def approve(
        self, plans: list[TrainingPlan], site: Site, rules: Policy, *, never_run: bool
    ) -> None:
        """Put plans among those that this silo runs; one that was cancelled begins again."""
        from sumus.parties import approve, own_releases

        for agreement in approve(self.vault, plans, never_run=never_run):
            own_releases(agreement, site.ledger, rules, silo=self.identity.name).begin_again()


def _put_on_standard_input(passphrase: bytes) -> None:
    """Leave a passphrase for the program that this process turns into: in a pipe, which no other
    process can read.
    """
    reading, writing = os.pipe()
    os.write(writing, passphrase)
    os.close(writing)
    os.dup2(reading, 0, inheritable=True)
    os.close(reading)


def _beside(identity: Path | None) -> Path | None:
    """The transport key that `sumus keys new` wrote beside an identity."""
    if identity is None:
        return None
    path = identity.with_name(f"{identity.name.removesuffix('.key')}{TRANSPORT_KEY}")
    return path if path.is_file() else None


def _end_check(rules: Policy, roster: Roster) -> None:
    """The last words of a dry run."""
    from sumus.cli.pinning import pin_line

    console = screen()
    if rules.roster_fingerprint is None:
        console.print(
            "compare the roster fingerprint with the other silos by telephone, then join with this "
            "line in the policy:"
        )
        console.print(f"  {pin_line(roster)}", markup=False, soft_wrap=True)
    console.print("ready to join; nothing was written")


def _separated(console: Console, user: str | None, kit: Path, secret: list[Path]) -> str | None:
    """Give the kit to the engine's user, who must be able to read nothing secret; without one, say
    what that means.
    """
    from sumus.engines import UnixUser

    relaying = None if user is None else UnixUser.named(user)
    if relaying is None or relaying.is_this_one:
        console.print(
            "the engine runs under the same user: keys and records are protected by file modes and "
            "a process of their own only (--user NAME separates them)",
            soft_wrap=True,
        )
        return None
    relaying.require_blind(secret)
    relaying.take_over(kit)
    console.print(f"the engine runs as user {relaying.name}, who can read neither vault nor data")
    return relaying.name


def _text(path: Path, source: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = "not a text file" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise DataError(f"{path} cannot be read: {reason}. Check {source}.") from None
