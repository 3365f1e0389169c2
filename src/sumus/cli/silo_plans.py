"""`sumus silo approve | withdraw | plans`: which plans a silo runs, also while it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sumus.cli.approving import show_plan
from sumus.cli.options import AsJson, print_json
from sumus.cli.terminal import screen
from sumus.cli.vaults import require_own, vault_of_silo
from sumus.errors import PlanError, SumusError
from sumus.files import read_bytes, read_toml

if TYPE_CHECKING:
    from sumus.books import LedgerReleases, Policy
    from sumus.parties import Site
    from sumus.plan import TrainingPlan

__all__ = ["silo_app"]

silo_app = typer.Typer(add_completion=False)

_Vault = Annotated[
    str,
    typer.Argument(
        metavar="KIT|VAULT",
        help="The silo's kit or vault, or its name if it has one vault only.",
    ),
]


@silo_app.command("approve")
def approve_plans(
    vault: _Vault,
    plan: Annotated[list[Path], typer.Argument(help="Plan files that this silo approves.")],
    policy: Annotated[
        Path | None,
        typer.Option(help="Another policy for the silo from now on. Omitted: the one it has."),
    ] = None,
    reserve: Annotated[
        bool,
        typer.Option(
            "--reserve", help="Set their ε aside now; otherwise each does when its run begins."
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
        typer.Option("--check", help="Say what would be agreed to, write nothing, and end."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Approve further plans for a silo that has joined, also while it runs: it takes them up by
    itself. All of them, or none.
    """
    from sumus.books import Policy
    from sumus.cli.dataset_total import ledger_text
    from sumus.cli.pinning import pinned_text, require_pinned
    from sumus.parties import (
        SeenLedger,
        Site,
        approve,
        read_rosters,
        replace_policy,
        require_known,
        require_not_retired,
        silo_of,
    )
    from sumus.plan import TrainingPlan

    folder, console = vault_of_silo(vault), screen(stderr=as_json)
    require_own(folder)
    require_not_retired(folder)
    kept = folder / "policy.toml"
    text = (
        read_bytes(kept).decode(errors="replace")
        if policy is None
        else pinned_text(read_toml(policy, "policy"), None, kept)
    )
    rules, rosters = Policy.from_toml(text), read_rosters(folder)
    require_pinned(rules, rosters)
    silo, site = silo_of(folder), Site.of_folder(folder)
    SeenLedger(folder, site.ledger).require_whole()
    console.print(f"silo                {silo}")
    console.print(ledger_text(site.ledger))
    members = rosters.current.names
    shown = [
        show_plan(
            console,
            TrainingPlan.load(path),
            silo=silo,
            members=members,
            where="this silo's roster",
            site=site,
            rules=rules,
        )
        for path in plan
    ]
    require_known(folder, shown, never_run=never_run, write=False)
    for line in _crowded(folder, shown, site, rules, silo):
        console.print(f"  notice       {line}", markup=False, soft_wrap=True)
    if not check:
        if policy is not None:
            replace_policy(folder, text)
        _reserve_all(shown, site, rules, silo, reserve=reserve)
        approve(folder, shown, never_run=never_run)
    hashes = [each.hash for each in shown]
    if as_json:
        print_json({"vault": str(folder), "silo": silo, "plans": hashes, "written": not check})
        return
    console.print(
        "ready to approve; nothing was written"
        if check
        else "approved; a silo that runs takes it up by itself. Make a new backup: `sumus silo backup`"
    )


def _reserve_all(
    plans: Sequence[TrainingPlan], site: Site, rules: Policy, silo: str, *, reserve: bool
) -> None:
    """Set the ε of plans aside, or of those that were withdrawn before and begin again; all of
    them, or none.
    """
    from sumus.parties import agree_on, own_releases

    held = {each.key for each in site.ledger.reservations()}
    done: list[LedgerReleases] = []
    try:
        for plan in plans:
            releases = own_releases(agree_on(plan), site.ledger, rules, silo=silo)
            ended = site.ledger.ended(releases.run, plan.hash)
            if reserve or (ended is not None and ended.cancelled):
                releases.reserve(again=True)
                done += [releases] if (releases.run, plan.hash) not in held else []
    except SumusError:
        for releases in done:
            releases.end("not approved after all")
        raise


def _crowded(
    folder: Path, plans: Sequence[TrainingPlan], site: Site, rules: Policy, silo: str
) -> list[str]:
    """What to say where all plans that are approved, and have not been run, do not fit together."""
    from sumus.books import rounded_up, whole_run
    from sumus.parties import ApprovedPlans, agree_on, run_on_ledger

    if rules.max_epsilon is None:
        return []
    known = {each.run for each in site.ledger.runs()} | {
        each.run for each in site.ledger.reservations()
    }
    waiting = {each.hash: each for each in (*ApprovedPlans(folder), *plans)}
    accounts = [
        agree_on(plan).account
        for plan_hash, plan in waiting.items()
        if run_on_ledger(plan_hash, silo) not in known
    ]
    lines = []
    for unit in sorted({account.unit for account in accounts}):
        own = [whole_run(account)[0] for account in accounts if account.unit == unit]
        total = site.ledger.committed(unit).epsilon + sum(own)
        if total > rules.max_epsilon:
            lines.append(
                f"the {len(own)} approved plans that have not run would bring the data set to ε ≤ "
                f"{rounded_up(total)} for one {unit} by simple addition, and max_epsilon is "
                f"{rules.max_epsilon:g}: the last of them will be refused"
            )
    return lines


@silo_app.command("withdraw")
def withdraw_plan(
    vault: _Vault,
    plan: Annotated[
        str, typer.Argument(metavar="PLAN|HASH", help="The plan's file, or how its hash begins.")
    ],
    as_json: AsJson = False,
) -> None:
    """Withdraw a plan: from now on this silo answers nothing of it, also while it runs. What it has
    spent stays on the ledger; what it had set aside is free again.
    """
    from sumus.parties import Site, run_on_ledger, silo_of, withdraw

    folder = vault_of_silo(vault)
    require_own(folder)
    plan_hash = _approved_hash(folder, plan)
    withdraw(folder, plan_hash)
    run = run_on_ledger(plan_hash, silo_of(folder))
    free = Site.of_folder(folder).ledger.end(
        run, plan_hash, why="withdrawn by its people", cancelled=True
    )
    if as_json:
        print_json({"vault": str(folder), "plan": plan_hash, "was_set_aside": free})
        return
    rest = "; what it had set aside and not spent is free again" if free else ""
    typer.echo(f"plan {plan_hash} is withdrawn: this silo answers nothing more of it{rest}")


def _approved_hash(folder: Path, given: str) -> str:
    """The hash of an approved plan, by its file or by how it begins."""
    from sumus.parties import ApprovedPlans, agree_on
    from sumus.plan import TrainingPlan

    known = [plan.hash for plan in ApprovedPlans(folder)]
    if Path(given).is_file():
        wanted = agree_on(TrainingPlan.load(given)).plan.hash
    else:
        wanted = given.lower()
    found = [each for each in known if each.startswith(wanted)]
    if len(found) != 1 or not re.fullmatch(r"[0-9a-f]{4,64}", wanted):
        listed = ", ".join(each[:8] for each in known) or "none"
        rule = (
            f"must be one approved plan, its file or the beginning of its hash (there are {listed})"
        )
        raise PlanError("PLAN", given, rule, "`sumus silo plans` lists them.")
    return found[0]


@silo_app.command("plans")
def list_plans(vault: _Vault, as_json: AsJson = False) -> None:
    """The plans that a silo has approved, and how far each was answered; `sumus ledger show` has
    what they have spent.
    """
    folder = vault_of_silo(vault)
    require_own(folder)
    plans = _plans(folder)
    if as_json:
        print_json({"vault": str(folder), "plans": plans})
        return
    console = screen()
    if not plans:
        console.print("no plan is approved: everything is refused")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("plan", "what", "answered up to", "state"):
        table.add_column(heading, no_wrap=heading == "plan")
    for each in plans:
        answered = f"round {each['answered_up_to']} of {each['rounds']}"
        table.add_row(each["plan"][:16], each["words"], answered, each["state"])
    console.print(table)


def _plans(folder: Path) -> list[dict[str, Any]]:
    from sumus.books import plan_words
    from sumus.parties import ApprovedPlans, SiloState, Site, last_sum, run_on_ledger, silo_of

    state, silo, ledger = SiloState(folder), silo_of(folder), Site.of_folder(folder).ledger
    held = {each.key for each in ledger.reservations()}
    listed = []
    for plan in ApprovedPlans(folder):
        last = state.last_answered(bytes.fromhex(plan.hash))
        over = last is not None and last >= last_sum(plan)
        reserved = (run_on_ledger(plan.hash, silo), plan.hash) in held
        begun = "under way" if last is not None else "not begun"
        told = "over" if over else f"{begun}, its ε is set aside" if reserved else begun
        listed.append(
            {
                "plan": plan.hash,
                "words": plan_words(plan),
                "answered_up_to": 0 if last is None else last // 2 + 1,
                "rounds": plan.federation.rounds,
                "state": told,
                "over": over,
                "set_aside": reserved,
            }
        )
    return listed
