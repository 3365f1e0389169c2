"""What must hold after a soak, looked at with code that shares none with what it checks: chains by
hashlib, ε by the closed form of composed Gaussian mechanisms, rounds by counting lines.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.optimize import brentq
from scipy.stats import norm

from soaking.federation import Federation
from soaking.office import Expected
from sumus.engines import PlanQueue

__all__ = ["Verifier", "gaussian_epsilon"]

_SLACK = 1e-3
"""By which ε on a ledger may be above the closed form: what floats, clipping and sampling cost."""


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε of a mechanism with trade-off function G_μ at δ (Balle, Wang 2018)."""

    def excess(epsilon: float) -> float:
        first = norm.cdf(-epsilon / mu + mu / 2.0)
        return float(first - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2.0) - delta)

    return float(brentq(excess, 0.0, 200.0, xtol=1e-12))


def chain(path: Path) -> list[dict[str, Any]]:
    """The lines of a hash chain, each checked against the one before it."""
    lines, previous = [], None
    for number, text in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not text:
            continue
        line = json.loads(text)
        body = json.dumps(line["body"], sort_keys=True, separators=(",", ":"))
        parts = ("sumus-chain-v1", line["previous"], line["kind"], body)
        if hashlib.sha256("\0".join(parts).encode()).hexdigest() != line["hash"]:
            raise ValueError(f"{path}, line {number} does not match its hash")
        if previous is not None and line["previous"] != previous:
            raise ValueError(f"{path}, line {number} does not continue the one before")
        previous = line["hash"]
        lines.append(line)
    return lines


class Verifier:
    """Looks at everything that a soak left behind.

    Args:
        silos: all that ever took part.
        lost_ledgers: silos whose ledger was lost and restored for the worst.
    """

    def __init__(
        self,
        federation: Federation,
        *,
        silos: Sequence[str],
        lost_ledgers: Sequence[str],
        expected: Expected,
    ) -> None:
        self._federation, self._silos, self._lost = federation, list(silos), set(lost_ledgers)
        self._expected = expected
        self.figures: dict[str, Any] = {}
        self._plans = {
            path.parent.parent.name: tomllib.loads((path.parent / "plan.toml").read_text())
            for path in self._server_runs()
        }

    def _server_runs(self) -> list[Path]:
        runs = self._federation.kit("server") / "sumus" / "runs"
        return sorted(runs.glob("*/*/journal.jsonl"))

    def checks(self) -> dict[str, Callable[[], list[str]]]:
        """By name, each gives what is wrong, a line each."""
        return {
            "every chain is whole": self.chains,
            "ε on every ledger is that of the releases made": self.epsilon,
            "ε of every run is that of its silos' ledgers": self.runs_equal_ledgers,
            "no round was answered twice": self.answered_once,
            "no round has less noise than accounted": self.enough_silos,
            "every silo took part in the last run": self.everybody,
            "every run that a silo was handed was believed": self.deliveries,
            "the queue did what it should": self.queue,
            "`sumus audit evidence` is content": self.evidence,
            "`sumus ledger verify` is content": self.ledgers,
        }

    # -- books

    def _ledger(self, silo: str) -> Path | None:
        return next(iter(self._federation.state(silo).glob("ledger-*.jsonl")), None)

    def _releases(self, silo: str) -> Iterator[dict[str, Any]]:
        path = self._ledger(silo)
        for line in [] if path is None else chain(path):
            if line["kind"] == "release":
                yield line["body"]

    def chains(self) -> list[str]:
        """Ledgers, trails, rounds, journals and evidence."""
        places = [
            *self._server_runs(),
            *(path.with_name("evidence.jsonl") for path in self._server_runs()),
        ]
        places += list((self._federation.kit("server") / "sumus").glob("audit*.jsonl"))
        for silo in self._silos:
            state = self._federation.state(silo)
            places += [
                *state.glob("ledger-*.jsonl"),
                *state.rglob("audit*.jsonl"),
                *state.rglob("rounds.log"),
            ]
        wrong = []
        for path in places:
            if path.exists():
                try:
                    self.figures["lines of chains"] = self.figures.get("lines of chains", 0) + len(
                        chain(path)
                    )
                except (ValueError, KeyError) as error:
                    wrong.append(str(error))
        return wrong

    def epsilon(self) -> list[str]:
        """The last ε of every run on a ledger is that of as many Gaussian releases, by the closed
        form; of a run whose ledger was lost, that of the whole plan.
        """
        wrong, worst = [], 0.0
        for silo in self._silos:
            for (plan_hash, purpose), entries in _grouped(self._releases(silo)).items():
                plan = self._plans.get(plan_hash)
                if plan is None:
                    continue  # approved, and run by nobody else
                multiplier = plan["noise" if purpose == "model" else "evaluation"][
                    "noise_multiplier"
                ]
                made = len({entry["round_id"] for entry in entries})
                mu = math.sqrt(made) / float(multiplier)
                least = gaussian_epsilon(mu, float(plan["privacy"]["delta"]))
                told = max(float(entry["epsilon"]) for entry in entries)
                worst = max(worst, abs(told / least - 1.0))
                if not least * (1.0 - 1e-9) <= told <= least * (1.0 + _SLACK):
                    wrong.append(
                        f"{silo}, plan {plan_hash[:8]}, {purpose}: {told} for {made}, not {least}"
                    )
        self.figures["largest relative distance of ε from the closed form"] = worst
        return wrong

    def runs_equal_ledgers(self) -> list[str]:
        """ε of a run after k rounds is, bit for bit, what the ledger of each silo says that made k
        releases.
        """
        wrong, compared = [], 0
        for journal in self._server_runs():
            plan_hash = journal.parent.parent.name
            rounds = [line["body"] for line in chain(journal) if line["kind"] == "round"]
            by_count = {
                number: float(body["epsilon_spent"])
                for number, body in enumerate(rounds, 1)
                if int(body["round"]) == number
            }
            for silo in self._silos:
                own = [
                    e
                    for e in self._releases(silo)
                    if e["plan_hash"] == plan_hash and e["purpose"] == "model"
                ]
                for count, entry in enumerate(own, start=1):
                    presumed = entry["round_id"].endswith("/presumed")
                    if count in by_count and not presumed:
                        compared += 1
                        if float(entry["epsilon"]) != by_count[count]:
                            wrong.append(
                                f"{silo}, plan {plan_hash[:8]}, release {count}: {entry['epsilon']} and {by_count[count]}"
                            )
                took = [body for body in rounds if silo in body["survivors"]]
                if len(own) < len(took):
                    wrong.append(
                        f"{silo}, plan {plan_hash[:8]}: in {len(took)} sums, {len(own)} on its ledger"
                    )
        self.figures["entries of ledgers compared with journals"] = compared
        return wrong

    def answered_once(self) -> list[str]:
        """A silo's ledger has every round of a plan once, and its round memory no round twice."""
        wrong, rounds = [], 0
        for silo in self._silos:
            for (plan_hash, purpose), entries in _grouped(self._releases(silo)).items():
                real = [entry for entry in entries if not entry["round_id"].endswith("/presumed")]
                numbers = [int(entry["round"]) for entry in real]
                rounds += len(numbers)
                if len(set(numbers)) < len(numbers):
                    wrong.append(f"{silo}, plan {plan_hash[:8]}, {purpose}: a round number twice")
                if any("/" in entry["round_id"] for entry in real):
                    wrong.append(
                        f"{silo}, plan {plan_hash[:8]}, {purpose}: a round id drawn for twice"
                    )
        self.figures["releases on all ledgers"] = rounds
        return wrong

    def enough_silos(self) -> list[str]:
        """Every sum has as many silos as the noise counts on."""
        wrong = []
        for journal in self._server_runs():
            plan = self._plans[journal.parent.parent.name]["federation"]
            needed = int(plan["silos"]) - int(plan["dropouts"])
            for line in chain(journal):
                if line["kind"] == "round" and len(line["body"]["survivors"]) < needed:
                    wrong.append(f"{journal}: round {line['body']['round']} with too few silos")
        return wrong

    def everybody(self) -> list[str]:
        """Whoever was hurt is back in the end."""
        journals = self._server_runs()
        if not journals:
            return ["nothing was run"]
        last = max(journals, key=lambda path: path.stat().st_mtime_ns)
        seen = {
            name
            for line in chain(last)
            if line["kind"] == "round"
            for name in line["body"]["survivors"]
        }
        return [f"{name} is in no round" for name in self._federation.silos if name not in seen]

    def deliveries(self) -> list[str]:
        """No trail of a silo has a delivery that it refused; some run has arrived at every silo."""
        wrong = []
        for silo in self._silos:
            lines = [
                line
                for path in self._federation.state(silo).rglob("audit*.jsonl")
                for line in chain(path)
            ]
            refused = [
                line
                for line in lines
                if line["kind"] == "refusal" and line["body"]["cause"] == "delivery"
            ]
            wrong += [f"{silo}: {len(refused)} refused"] if refused else []
            if not any(line["kind"] == "run.received" for line in lines):
                wrong.append(f"{silo}: nothing has arrived")
        return wrong

    # -- the queue

    def queue(self) -> list[str]:
        """Every plan that should run is finished with all its rounds, finished or lost; what nobody
        approved was set aside with that reason.
        """
        queue = PlanQueue(self._federation.kit("admin") / "queue")
        states = {each.number: each for each in queue.entries()}
        wrong = []
        for number in self._expected.run:
            entry = states.get(number)
            if entry is None or entry.state != "finished":
                wrong.append(f"plan {number}: {entry and (entry.state, entry.why)}")
        for number, reason in self._expected.set_aside.items():
            entry = states.get(number)
            if entry is None or entry.state != "set aside" or reason not in entry.why:
                wrong.append(f"plan {number}: {entry and (entry.state, entry.why)}")
        self.figures["plans finished"] = sum(each.state == "finished" for each in states.values())
        self.figures["plans set aside"] = sum(each.state == "set aside" for each in states.values())
        return wrong

    # -- our own auditors

    def evidence(self) -> list[str]:
        """Of every run, vault and the server's kit."""
        federation = self._federation
        epochs = federation.folder / "epochs.toml"
        roster = epochs if epochs.exists() else federation.folder / "roster.toml"
        wrong = []
        for journal in self._server_runs():
            words = ("audit", "evidence", journal.parent, "--roster", roster)
            wrong += self._tried(*words, party="server")
        wrong += self._tried("audit", "evidence", federation.kit("server"), party="server")
        for silo in self._silos:
            wrong += self._tried("audit", "evidence", federation.vault(silo), party=silo)
        return wrong

    def ledgers(self) -> list[str]:
        """Of every silo."""
        return [
            line for silo in self._silos for line in self._tried("ledger", "verify", party=silo)
        ]

    def _tried(self, *words: object, party: str) -> list[str]:
        try:
            self._federation.sumus(*words, party=party)
        except RuntimeError as error:
            return [str(error)]
        return []


def _grouped(
    releases: Iterator[dict[str, Any]],
) -> Mapping[tuple[str, str], list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for entry in releases:
        groups[entry["plan_hash"], entry["purpose"]].append(entry)
    return groups
