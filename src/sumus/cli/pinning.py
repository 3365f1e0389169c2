"""Which roster a silo takes part in: the one whose fingerprint its own people have compared.

The roster arrives in the coordinator's kit, and whoever makes the kit could put made-up silos on
it: their "sum" would then be one silo's own vector. So a silo names the roster itself, in its policy
or on the command line, and nothing is written before it has.
"""

from __future__ import annotations

from pathlib import Path

from sumus.books import Policy
from sumus.cli.keys import fingerprint
from sumus.errors import PolicyError, SumusError
from sumus.files import toml_value
from sumus.parties import pinned
from sumus.secagg import Roster, RosterHistory

__all__ = ["pin_line", "pinned_text", "require_pinned"]


def pin_line(roster: Roster) -> str:
    """The line of a policy that names a roster."""
    return f"roster_fingerprint = {toml_value(fingerprint(roster))}"


def pinned_text(text: str, given: str | None, kept: Path) -> str:
    """A policy's text with the fingerprint that this silo's people have named, if they have.

    Args:
        text: the policy, as its file has it.
        given: on the command line.
        kept: the policy of an earlier `join`, which names what was given then.
    """
    rules = Policy.from_toml(text)
    if given is not None:
        named = Policy(roster_fingerprint=given).roster_fingerprint
        if rules.roster_fingerprint is None:
            return f"roster_fingerprint = {toml_value(named)}\n{text}"
        if _plain(rules.roster_fingerprint) != _plain(given):
            raise PolicyError(
                "--fingerprint and roster_fingerprint of the policy name different rosters. Compare "
                "with the other silos once more, and give one of them."
            )
        return text
    earlier = _kept(kept)
    if rules.roster_fingerprint is None and earlier is not None:
        return f"roster_fingerprint = {toml_value(earlier)}\n{text}"
    return text


def require_pinned(rules: Policy, rosters: RosterHistory) -> None:
    """Refuse a roster that this silo's people have not named, nor one from which quorums lead to
    it.
    """
    if pinned(rules, rosters):
        return
    roster = rosters.current
    shown = fingerprint(roster)
    if rules.roster_fingerprint is None:
        raise PolicyError(
            f"this silo's policy does not say which roster it trusts; the kit's is {shown}. Compare "
            f"it with the other silos by telephone, then add this line to the policy: {pin_line(roster)}"
        )
    raise PolicyError(
        f"the kit's roster is {shown}, and this silo's policy names "
        f"roster_fingerprint = {rules.roster_fingerprint!r}. Somebody has another roster: compare "
        "with the other silos, and ask the coordinator for their kit."
    )


def _plain(text: str) -> str:
    return text.replace(" ", "").lower()


def _kept(policy: Path) -> str | None:
    try:
        return Policy.load(policy).roster_fingerprint if policy.is_file() else None
    except SumusError:
        return None
