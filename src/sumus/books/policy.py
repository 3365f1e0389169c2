"""A silo's own policy: what it will take part in, whatever the server or the consortium asks.

max_epsilon = 4.0                # over everything on the data set's ledger, this run included, added up
max_epsilon_per_run = 1.0
max_delta = 1e-4                 # over the whole ledger, this run included, added up
min_silos = 5
min_noise_contributors = 4
allowed_analyses = ["convex-pass", "split-noise", "single-step", "last-step", "local"]
require_proved = true
allowed_plan_hashes = []         # empty or omitted: any plan
max_round_gap = 100              # rounds that an invitation may be ahead of the last one answered
units = ["record"]
roster_fingerprint = "…"         # of the roster that this silo's people compared with the others'
allowed_models = ["clinic.nets:Net"]  # models, features and losses of a plan that are not Sumus's own
require_post_quantum = false     # true: every neighbour's key exchange must include ML-KEM-768

policy = Policy.load("policy.toml")
policy.check(account, plan, ledger)                             # before a run: all of it must fit
ledger.reserve(reservation, allow=policy.check_total)           # before its first release, for all of it
ledger.enter(entry, allow=policy.check_total)                   # before every release: what is really there must fit
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, final

from sumus.books.ledger import Ledger
from sumus.books.reservation import reserved_words, whole_run
from sumus.books.spending import Total
from sumus.errors import PlanError, PolicyError
from sumus.files import (
    RuledTable,
    choice,
    flag,
    key,
    names,
    number,
    optional,
    parse_toml,
    read_toml,
    text,
    whole,
)
from sumus.guarantee import STATEMENTS
from sumus.plan import TrainingPlan

if TYPE_CHECKING:
    from sumus.guarantee import Account
__all__ = ["Policy"]

_ANALYSES = tuple(STATEMENTS)
_UNITS = ("record", "person", "silo")


@final
@dataclass(frozen=True, kw_only=True)
class Policy(RuledTable):
    """What one silo allows. An omitted limit does not bind, except that only proved guarantees are
    accepted unless it says otherwise.

    Guarantee: `check` returns only if the account is of this very plan and, added to everything on
        the ledger, stays within every limit; a plan without a guarantee is always refused.
    """

    document: ClassVar[str] = "policy"

    max_epsilon: float | None = key(
        None, optional(number(above=0.0))
    )  # over the whole ledger of the data set, this run included, added up
    max_epsilon_per_run: float | None = key(
        None, optional(number(above=0.0))
    )  # of the run alone, metrics and tuning included
    max_delta: float | None = key(
        None, optional(number(above=0.0, below=1.0))
    )  # over the whole ledger, this run included, added up
    min_silos: int | None = key(None, optional(whole(low=1)))  # silos that the plan has at least
    min_noise_contributors: int | None = key(
        None, optional(whole(low=1))
    )  # silos whose noise the guarantee counts on, at least
    allowed_analyses: tuple[str, ...] = key(
        _ANALYSES, names(choice(*_ANALYSES))
    )  # analyses that a guarantee may rest on
    require_proved: bool = key(
        True, flag()
    )  # refuse what rests on an analysis that is not proved for the plan
    allowed_plan_hashes: tuple[str, ...] = key(
        (), names(text())
    )  # plans that may run (`sumus plan` prints hashes); empty: any plan
    max_round_gap: int = key(
        100, whole(low=1)
    )  # rounds that an invitation may be ahead of the last one that was answered
    units: tuple[str, ...] = key(
        _UNITS, names(choice(*_UNITS))
    )  # units of privacy that a guarantee may have
    roster_fingerprint: str | None = key(
        None, optional(text())
    )  # of the roster that this silo takes part in, compared with the others outside of any network; `sumus join` needs it
    allowed_models: tuple[str, ...] = key(
        (), names(text())
    )  # models, feature maps and losses that a plan may name beside Sumus's own, as "package.module:Class"; nothing else is imported
    require_post_quantum: bool = key(
        False, flag()
    )  # refuse keys of silos whose pairs would rest on X25519 alone, without ML-KEM-768

    def __post_init__(self) -> None:
        super().__post_init__()
        for given in self.allowed_plan_hashes:
            if len(given) != 64 or set(given) - set("0123456789abcdef"):
                rule = "must be 64 hexadecimal digits in lower case"
                raise PlanError(
                    "policy.allowed_plan_hashes",
                    given,
                    rule,
                    "Copy the hash that `sumus plan` prints.",
                )
        if self.roster_fingerprint is not None:
            plain = self.roster_fingerprint.replace(" ", "").lower()
            if len(plain) != 64 or set(plain) - set("0123456789abcdef"):
                raise PlanError(
                    "policy.roster_fingerprint",
                    self.roster_fingerprint,
                    "must be 64 hexadecimal digits, in groups or not",
                    "Copy the fingerprint that everybody has compared.",
                )

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file."""
        return cls.from_toml(read_toml(path, "policy"))

    @classmethod
    def from_toml(cls, source: str) -> Policy:
        """Parse a policy from TOML text, refusing keys it does not know."""
        return cls.from_table(parse_toml(source, "policy"))

    def pins(self, digest: bytes) -> bool:
        """Whether this silo's people have named the roster with this digest."""
        named = self.roster_fingerprint
        return named is not None and named.replace(" ", "").lower() == digest.hex()

    def check_imports(self, plan: TrainingPlan) -> None:
        """Refuse a plan that names code which is not Sumus's own and which this silo's people have
        not listed; asks nothing of that code, so call it before anything is imported.
        """
        training = plan.training
        for field in ("model", "features", "loss"):
            name = getattr(training, field) or ""
            if ":" in name and name not in self.allowed_models:
                raise PolicyError(
                    f"training.{field} of the plan is {name!r}, code that this silo's policy does "
                    f'not list. Read it, then add "{name}" to allowed_models.'
                )

    def check(
        self, account: Account | None, plan: TrainingPlan, ledger: Ledger, *, run: str | None = None
    ) -> None:
        """Refuse a plan that this silo does not allow, in one line that says why.

        Args:
            account: the guarantee of the resolved plan; None if it has none.
            run: the run that is resumed; what it has spent already is part of its account and not
                counted twice.
        """
        if account is None:
            raise PolicyError(
                "this plan has no privacy guarantee, and a policy accepts none without. Use an "
                "algorithm that adds noise."
            )
        if account.plan_hash != plan.hash:
            raise PolicyError(
                f"the account is of plan {account.plan_hash[:8]}, not of plan {plan.hash[:8]}. "
                "Account for the plan that runs."
            )
        self._check_plan(account, plan)
        epsilon, metrics = (
            max(account.epsilon, account.tuning_epsilon or 0.0),
            account.metrics_epsilon or 0.0,
        )
        if (
            self.max_epsilon_per_run is not None
            and not max(epsilon, metrics) <= self.max_epsilon_per_run
        ):
            raise _refused(
                "max_epsilon_per_run",
                self.max_epsilon_per_run,
                f"this run guarantees only ε ≤ {max(epsilon, metrics):.6g}",
            )
        before, (whole, delta) = ledger.committed(account.unit, without=run), whole_run(account)
        what = f"{before.runs} earlier runs on the ledger and this one{reserved_words(before)}"
        self._check_sum(before.epsilon + whole, before.delta + delta, what)

    def check_gap(self, number: int, last: int) -> None:
        """Refuse a round (from 0) that leaps too far ahead of the last one that was answered, −1
        before the first: whoever answers it can answer none of those before.
        """
        if number - last > self.max_round_gap:
            raise _refused(
                "max_round_gap",
                self.max_round_gap,
                f"round {number + 1} is {number - last} after the last that was answered",
            )

    def check_total(self, total: Total) -> None:
        """Refuse a total that exceeds the limits; for `Ledger.enter`, which calls it while other
        processes wait.
        """
        if total.unit not in self.units:
            raise _refused("units", ", ".join(self.units), f"the release protects one {total.unit}")
        if self.require_proved and not total.proved:
            raise _refused(
                "require_proved",
                "true",
                "the ledger or the release rests on an analysis that is not proved",
            )
        what = f"all {total.runs} runs on the ledger with this release{reserved_words(total)}"
        self._check_sum(total.epsilon, total.delta, what)

    def _check_plan(self, account: Account, plan: TrainingPlan) -> None:
        """The limits that need no ledger."""
        if self.allowed_plan_hashes and plan.hash not in self.allowed_plan_hashes:
            raise _refused(
                "allowed_plan_hashes",
                f"{len(self.allowed_plan_hashes)} hashes",
                f"plan {plan.hash} is not among them",
            )
        if account.unit not in self.units:
            raise _refused("units", ", ".join(self.units), f"the plan protects one {account.unit}")
        if self.require_proved and not account.proved:
            raise _refused(
                "require_proved",
                "true",
                f'the analysis "{account.analysis}" is not proved for this plan',
            )
        if account.analysis not in self.allowed_analyses:
            raise _refused(
                "allowed_analyses",
                ", ".join(self.allowed_analyses),
                f'the guarantee rests on "{account.analysis}"',
            )
        if account.metrics_epsilon is not None and not set(self.allowed_analyses) - {"local"}:
            raise _refused(
                "allowed_analyses",
                "local",
                "the counts of test records rest on the noise of other silos",
            )
        silos = plan.federation.silos
        if self.min_silos is not None and (silos is None or silos < self.min_silos):
            raise _refused("min_silos", self.min_silos, f"the plan has {silos}")
        if (
            self.min_noise_contributors is not None
            and plan.noise_contributors < self.min_noise_contributors
        ):
            raise _refused(
                "min_noise_contributors",
                self.min_noise_contributors,
                f"the guarantee counts on {plan.noise_contributors}",
            )

    def _check_sum(self, epsilon: float, delta: float, what: str) -> None:
        if self.max_epsilon is not None and not epsilon <= self.max_epsilon:
            raise _refused("max_epsilon", self.max_epsilon, f"{what} add up to ε ≤ {epsilon:.6g}")
        if self.max_delta is not None and not delta <= self.max_delta:
            raise _refused("max_delta", self.max_delta, f"{what} add up to δ = {delta:.3g}")


def _refused(key: str, limit: object, reason: str) -> PolicyError:
    return PolicyError(
        f"this silo's policy forbids the release: {key} = {limit}, but {reason}. Change the plan, "
        "or the policy."
    )
