"""The limit that a data set has where nobody has set one: what runs add up to must not creep up.

    ~/.local/state/sumus/budget.toml
    max_epsilon = 10.0               # of everything on a data set's ledger, the next run included

Without that file the limit is 10 for one record, person or silo. One run's own ε stands in its plan
and is never too much by itself; every further run must fit. `--max-epsilon` (or
`RunOptions.max_epsilon`) says for one run that more is meant.

It guards whoever tries things out on records of their own, in this process. Named data sets are
public, simulations release nothing, a silo across machines has its own policy (`policy`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, final

from sumus.books.ledger import Ledger
from sumus.books.reservation import reserved_words, whole_run
from sumus.books.round import rounded_up
from sumus.books.spending import Total, without_bound
from sumus.errors import PlanError, PolicyError
from sumus.files import RuledTable, flag, key, number, parse_toml, read_toml
from sumus.plan import UNNAMED, TrainingPlan

if TYPE_CHECKING:
    from sumus.guarantee import Account

__all__ = ["DEFAULT_MAX_EPSILON", "Budget", "BudgetFile"]

DEFAULT_MAX_EPSILON = 10.0


@final
@dataclass(frozen=True, kw_only=True)
class BudgetFile(RuledTable):
    """What `budget.toml` beside the ledgers says."""

    document: ClassVar[str] = "budget"

    max_epsilon: float = key(
        DEFAULT_MAX_EPSILON, number(above=0.0)
    )  # over the whole ledger of any data set, the next run included
    no_limit: bool = key(False, flag())  # true: nothing is too much

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read it, refusing keys that it does not know."""
        return cls.from_table(parse_toml(read_toml(path, "budget"), "budget"))


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limit of one data set.

    Guarantee: a release that would bring everything on the ledger above `max_epsilon` is refused
        before it is entered, unless it belongs to the first run there.

    Args:
        max_epsilon: infinite: none.
        said_by: where the number comes from, for people.
        file: where another one could be written.
    """

    ledger: Ledger
    max_epsilon: float
    said_by: str
    file: Path

    @classmethod
    def of(cls, plan: TrainingPlan, ledger: Ledger, *, asked: float | None = None) -> Budget | None:
        """Of a plan's own records; None where they are a named, public data set.

        Args:
            asked: what `--max-epsilon` says.
        """
        if plan.data.path is None and plan.data.objects is None:
            return None
        file = ledger.path.parent / "budget.toml"
        if asked is not None:
            if not asked > 0.0:  # NaN too
                rule = "must be a number above 0, or inf"
                raise PlanError("--max-epsilon", asked, rule, "Say how much may be spent in all.")
            return cls(ledger=ledger, max_epsilon=asked, said_by="--max-epsilon", file=file)
        if not file.exists():
            said = "the default"
            return cls(ledger=ledger, max_epsilon=DEFAULT_MAX_EPSILON, said_by=said, file=file)
        stored = BudgetFile.load(file)
        limit = math.inf if stored.no_limit else stored.max_epsilon
        return cls(ledger=ledger, max_epsilon=limit, said_by=str(file), file=file)

    def check(self, account: Account | None, *, run: str | None = None) -> None:
        """Refuse a run that would not fit, before anything of it is computed.

        Args:
            account: None: the run promises nothing, and says so.
            run: that is resumed; what it has spent is part of its account.
        """
        if account is None:
            return
        before, (whole, _) = self.ledger.committed(account.unit, without=run), whole_run(account)
        if before.runs:
            self._require(before.epsilon + whole, before, earlier=before.runs)

    def check_total(self, total: Total) -> None:
        """Refuse a release that does not fit, whatever other processes have entered meanwhile; for
        `Ledger.reserve` and `Ledger.enter`.
        """
        if total.runs > 1:
            self._require(total.epsilon, total, earlier=total.runs - 1)

    def _require(self, epsilon: float, total: Total, *, earlier: int) -> None:
        if epsilon <= self.max_epsilon:
            return
        unit = total.unit
        runs = "1 earlier run" if earlier == 1 else f"{earlier} earlier runs"
        spent = f"ε ≤ {rounded_up(epsilon)}"
        more = f"{math.ceil(epsilon)}" if math.isfinite(epsilon) else "inf"
        fix = f"To go on, write max_epsilon into {self.file}, or say --max-epsilon {more}"
        if math.isinf(epsilon):
            spent = f"no bound ({without_bound(unit)})"
            fix = f"{self._other_unit(unit)}To go on without a bound, write no_limit = true into "
            fix += f"{self.file}, or say --max-epsilon {more}"
        if self.ledger.dataset == UNNAMED:
            fix += ", or name= where these are other records"
        raise PolicyError(
            f"{self.ledger.dataset} would have {spent} for one {unit} after {runs} and this one"
            f"{reserved_words(total)}, and max_epsilon = {self.max_epsilon:g} ({self.said_by}). {fix} (in Python: "
            f"RunOptions(max_epsilon={_in_python(more)}))."
        )

    def _other_unit(self, unit: str) -> str:
        """The advice to protect what earlier runs protect, where that has a bound."""
        units = sorted({entry.unit for entry in self.ledger.entries()} - {unit})
        bounded = [each for each in units if math.isfinite(self.ledger.total(each).epsilon)]
        if not bounded:
            return ""
        return f'Protect what the earlier runs protect: privacy.unit = "{bounded[0]}". '


def _in_python(number: str) -> str:
    return "math.inf" if number == "inf" else number
