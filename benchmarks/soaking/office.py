"""The people: who writes plans, queues them and approves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soaking.federation import Federation
from sumus.engines import PlanQueue

__all__ = ["Expected", "Office"]

_MOST_RETRIES = 3
_PLAN = """
[privacy]
epsilon = {epsilon}
delta = 1e-6
[federation]
silos = {count}
rounds = {rounds}
local_steps = 4
dropouts = 1
colluding = 1
[training]
algorithm = "convex-pass"
model = "logistic"
learning_rate = 1.0
init_seed = {seed}
[noise]
resolution_bits = 12
[data]
path = "visits.csv"
silo_column = "site"
label_column = "again"
columns = ["age", "stay"]
records_per_silo = [{records}]
bounds = {{ age = [0, 110], stay = [0, 60] }}
categories = {{ site = [{sites}], again = ["no", "yes"] }}
[evaluation]
metrics = "{metrics}"
every = 10
"""


@dataclass
class Expected:
    """What should become of the plans, by their numbers in the queue."""

    run: list[int] = field(default_factory=list)
    set_aside: dict[int, str] = field(default_factory=dict)

    def forget(self, number: int) -> None:
        """A plan is taken out of the queue."""
        self.run = [each for each in self.run if each != number]
        self.set_aside.pop(number, None)


class Office:
    """Keeps the queue filled.

    Args:
        federation: whose.
        rounds: of a plan.
        batch: plans that are added and approved together.
    """

    def __init__(self, federation: Federation, *, rounds: int, batch: int) -> None:
        self._federation, self._rounds, self._batch = federation, rounds, batch
        self._seed, self.expected = 0, Expected()
        self.retried: Counter[int] = Counter()
        self.restored: set[str] = set()
        """Silos whose vault came from a backup, and whose people say of a new plan that it is new."""

    def write(
        self,
        silos: Sequence[str],
        *,
        epsilon: float = 1.0,
        metrics: str = "none",
        rounds: int | None = None,
    ) -> Path:
        """A plan that nobody has run."""
        self._seed += 1
        text = _PLAN.format(
            epsilon=epsilon,
            count=len(silos),
            rounds=self._rounds if rounds is None else rounds,
            seed=self._seed,
            records=", ".join(["100"] * len(silos)),
            sites=", ".join(f'"{name}"' for name in sorted(silos)),
            metrics=metrics,
        )
        folder = self._federation.root / "plans"
        folder.mkdir(exist_ok=True)
        path = folder / f"plan-{self._seed}.toml"
        path.write_text(text)
        return path

    def first_plan(self) -> Path:
        """The one that silos join with; it is not queued."""
        return self.write(self._federation.silos)

    def fill(self) -> None:
        """Queue a batch and have every silo approve it: the second with secure metrics, the last from
        the model of the first.
        """
        federation = self._federation
        silos, kit = federation.silos, federation.kit("admin")
        plain = [
            self.write(silos, metrics="secure" if n == 1 else "none")
            for n in range(self._batch - 1)
        ]
        added = federation.json("federation", "queue", "add", *plain, "--kit", kit)["added"]
        start = ("--start-from", added[0]["number"])
        chained = self.write(silos)
        added += federation.json("federation", "queue", "add", chained, *start, "--kit", kit)[
            "added"
        ]
        self._approve(added)

    def fill_long(self, rounds: int) -> None:
        """Queue one plan of so many rounds, in whose job every process lives long."""
        federation = self._federation
        path = self.write(federation.silos, rounds=rounds)
        words = ("federation", "queue", "add", path, "--kit", federation.kit("admin"))
        self._approve(federation.json(*words)["added"])

    def _approve(self, added: Sequence[Mapping[str, Any]]) -> None:
        """Every silo approves what was added, and it should run."""
        self.expected.run += [each["number"] for each in added]
        for name in self._federation.silos:
            files = [each["file"] for each in added]
            words = (*files, *self.assured(name))
            self._federation.sumus(
                "silo", "approve", self._federation.vault(name), *words, party=name
            )

    def assured(self, name: str) -> tuple[str, ...]:
        """What a silo's people say of a plan that nobody has run."""
        return ("--never-run",) if name in self.restored else ()

    def take_back(self) -> None:
        """Take out of the queue what waits, but for what begins at this very moment."""
        kit = self._federation.kit("admin")
        for entry in self.queue.entries():
            if entry.state == "waiting":
                words = ("federation", "queue", "remove", entry.number, "--kit", kit)
                self._federation.sumus(*words, code=None)
                if entry.number not in {each.number for each in self.queue.entries()}:
                    self.expected.forget(entry.number)

    def retry(self) -> None:
        """Have plans wait again that were run before every silo had approved them, three times at
        most.
        """
        for entry in self.queue.entries():
            number = entry.number
            if entry.state != "set aside" or number not in self.expected.run:
                continue
            if self.retried[number] < _MOST_RETRIES:
                self.retried[number] += 1
                kit = self._federation.kit("admin")
                self._federation.sumus("federation", "queue", "retry", number, "--kit", kit)

    def fill_in_vain(self) -> None:
        """Queue a plan that nobody approves, and one that is approved under no policy here."""
        federation = self._federation
        kit = federation.kit("admin")
        for reason, epsilon in (("has approved", 1.0), ("has approved", 8.0)):
            path = self.write(federation.silos, epsilon=epsilon)
            (added,) = federation.json("federation", "queue", "add", path, "--kit", kit)["added"]
            if epsilon > 3.0:  # the silos' own policy says no, so it is not even approved
                for name in federation.silos:
                    words = ("silo", "approve", federation.vault(name), added["file"])
                    federation.sumus(*words, party=name, code=3)
            self.expected.set_aside[int(added["number"])] = reason

    @property
    def queue(self) -> PlanQueue:
        """The operator's."""
        return PlanQueue(self._federation.kit("admin") / "queue")

    def waiting(self) -> int:
        """How many plans wait."""
        return sum(each.state == "waiting" for each in self.queue.entries())
