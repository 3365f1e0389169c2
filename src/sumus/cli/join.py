"""`sumus join`: take part in a federation as a silo, under this silo's own policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sumus.books import Ledger, Policy
from sumus.cli.keys import fingerprint as shown_fingerprint, require_silos_of
from sumus.cli.options import guarantee_text
from sumus.cli.pinning import pin_line, pinned_text, require_pinned
from sumus.cli.terminal import screen
from sumus.engines import Kit
from sumus.errors import DataError, PolicyError
from sumus.files import read_toml
from sumus.parties import Site, agree_on, approve, own_releases, require_unchanged, settle
from sumus.plan import TrainingPlan
from sumus.secagg import Identity, Roster

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
    fingerprint: Annotated[
        str | None,
        typer.Option(
            help="The roster fingerprint that all silos have compared, where the policy does not "
            "name it; kept after the first time."
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Check everything, say what would be agreed to, write nothing, and end."
        ),
    ] = False,
) -> None:
    """Join a federation: runs until it is stopped, and starts again what dies. Everything secret
    stays below KIT/sumus.
    """
    opened = Kit.open(kit, "silo")
    state, console = opened.state, screen()
    me = Identity.parse(_text(identity or state / "identity.key", "--identity"))
    policy_text = pinned_text(read_toml(policy, "policy"), fingerprint, state / "policy.toml")
    rules = Policy.from_toml(policy_text)
    if me.name != opened.party:
        raise DataError(
            f"the kit is {opened.party}'s, the identity {me.name}'s. Join with "
            f"{opened.party}.key, or with the kit of {me.name}."
        )
    roster = Roster.parse(_text(state / "roster.toml", "the kit"))
    source = str(Path(data).resolve()) if Path(data).exists() else data
    plans = [TrainingPlan.load(path) for path in plan] if plan else [_kit_plan(state, rules)]
    console.print(f"silo                {me.name}")
    console.print(f"roster fingerprint  {shown_fingerprint(roster)}", soft_wrap=True)
    if not check or rules.roster_fingerprint is not None:
        require_pinned(rules, roster)
    site = Site(data=source)
    ledger = Ledger.of_dataset(site.dataset, state=state)
    for approved in plans:
        training = approved.training
        console.print(f"model, features     {training.model}, {training.features}", markup=False)
        rules.check_imports(approved)
        agreement = agree_on(approved)
        console.print(f"plan hash           {agreement.plan.hash}", soft_wrap=True)
        console.print(guarantee_text(agreement.account))
        require_silos_of(
            [silo.name for silo in agreement.design.silos],
            named=roster.names,
            where="the kit's roster",
        )
        own_releases(agreement, ledger, rules)
        loaded = site.load(agreement.plan, me.name)
        records = loaded.silos[0]
        console.print(
            f"  records      {len(records.train)} for training, {len(records.test)} for tests, all "
            "stay here"
        )
        if records.left_out:
            console.print(
                f"  left out     {records.left_out} training records beyond the bound "
                f"{records.bound} are left out; nobody else is told"
            )
        for line in loaded.remarks:
            console.print(f"  notice       {line}; nobody else is told", markup=False)
    if check:
        require_unchanged(state, identity=me, roster=roster)
        _end_check(rules, roster)
        return
    settle(state, identity=me, roster=roster, data=source, policy=rules, policy_text=policy_text)
    approve(state, plans)
    from sumus.engines import supervise  # needs psutil, which `--check` does not

    engine, log = opened.engine, kit / "silo.log"
    command = engine.join(kit)
    console.print(
        f"joining; log in {log}, refusals in {state / 'refusals.log'}",
        soft_wrap=True,
    )

    def tell(line: str) -> None:
        if engine.CONNECTED in line:
            console.print("connected to the server")

    raise typer.Exit(supervise(command, log=log, tell=tell))


def _end_check(rules: Policy, roster: Roster) -> None:
    """The last words of a dry run."""
    console = screen()
    if rules.roster_fingerprint is None:
        console.print(
            "compare the roster fingerprint with the other silos by telephone, then join with this "
            "line in the policy:"
        )
        console.print(f"  {pin_line(roster)}", markup=False, soft_wrap=True)
    console.print("ready to join; nothing was written")


def _kit_plan(state: Path, rules: Policy) -> TrainingPlan:
    """The plan that came with the kit: somebody else's choice, so the silo's policy must name
    it.
    """
    path = state / "plan.toml"
    if not path.exists():
        raise DataError("the kit brings no plan. Give the plan this silo approves with --plan.")
    proposed = TrainingPlan.load(path)
    if proposed.hash not in rules.allowed_plan_hashes:
        fix = (
            f'Read {path}, then add "{proposed.hash}" to allowed_plan_hashes, or join with --plan '
            f"{path}."
        )
        raise PolicyError(
            f"the kit brings plan {proposed.hash[:8]}, which this silo's policy does not name. {fix}"
        )
    return proposed


def _text(path: Path, source: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = "not a text file" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise DataError(f"{path} cannot be read: {reason}. Check {source}.") from None
