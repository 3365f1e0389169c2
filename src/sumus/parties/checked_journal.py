"""Whether a journal that somebody else wrote is one that a server of this plan could have written:
every line of a known kind, every value of its type and within its range, every text one plain line.

What follows from the plan is computed here and compared; of what does not (how long a round took,
how large a sum was) only the form can be checked, and it is the server's word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from sumus.books import Released, RunFolder, StartedFrom, digest_of
from sumus.errors import StorageError
from sumus.files import from_json, plain_json
from sumus.parties.agreement import Agreement
from sumus.parties.blame import DISAGREED
from sumus.parties.entries import NO_LEDGER_HERE, PUBLIC_SEED, summary_of

__all__ = ["check_journal"]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(\+\d\d:\d\d|Z)")
_HEX = re.compile(r"[0-9a-f]{64}")
_MODEL = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_TEXT = 2000
_STAGES = {"local", "protocol", "server"}
_OF_SIMULATIONS = ("silo_scores", "clipped_fraction", "nonfinite", "saturated")


def check_journal(run: RunFolder, agreement: Agreement) -> None:
    """Refuse, as a `StorageError`, a journal that no honest server of the plan writes.

    Guarantee: header and summary say what this party computes from the plan and from the rounds of
        the journal; there is no path, no markup and no unknown key in it that anybody would act on.
    """
    checks = _Checks(agreement, str(run.path))
    links = run.links
    checks.header(links[0].body)
    for place, link in enumerate(links[1:], start=1):
        last = place == len(links) - 1
        if link.kind == "event":
            checks.event(link.body)
        elif link.kind not in ("round", "summary") or (link.kind == "summary" and not last):
            raise checks.wrong(f"a line of kind {link.kind!r:.40} does not belong there")
    checks.rounds(run)
    for measured in run.measurements():
        checks.measured(measured.metrics, measured.metrics_plus_minus)
        checks.measured(measured.metrics_of_constant, measured.metrics_tables)
        checks.number(measured.round, 1, agreement.rounds)
        checks.number(measured.of_round, 1, measured.round)
        checks.amounts(measured.seconds, measured.bytes_up, measured.bytes_down)
    if run.summary is not None:
        checks.summary(run)
    elif not links or links[-1].body.get("event") != "released":
        raise checks.wrong("it ends neither with a summary nor with a released model")


@final
@dataclass(frozen=True)
class _Checks:
    agreement: Agreement
    where: str

    def wrong(self, why: str) -> StorageError:
        return StorageError(f"the delivered journal is not one of this plan: {why}.")

    def require(self, holds: bool, why: str) -> None:
        if not holds:
            raise self.wrong(why)

    # -- values

    def text(self, value: Any, what: str, most: int = _LONGEST_TEXT) -> None:
        plain = isinstance(value, str) and len(value) <= most and value.isprintable()
        self.require(plain, f"{what} is not a line of plain text")

    def number(self, value: Any, least: int, most: int) -> None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        self.require(whole and least <= value <= most, f"{value!r:.40} is no number of a round")

    def amounts(self, *values: float) -> None:
        good = all(math.isfinite(value) and 0 <= value < 1e18 for value in values)
        self.require(good, "a time or a number of bytes is negative or infinite")

    def names(self, values: Any) -> None:
        known = isinstance(values, list | tuple) and set(values) <= set(self.agreement.names)
        self.require(known and len(set(values)) == len(values), "it names a silo that is none")

    def measured(self, *told: Mapping[str, Any]) -> None:
        """Measures by the names that the task has; tables of numbers under plain names."""
        task = self.agreement.plan.task
        known = {each.name for each in (*task.measures, *([task.spread] if task.spread else []))}
        for values in told:
            for name, value in values.items():
                self.text(name, "the name of a measure", 80)
                if isinstance(value, Mapping):
                    for column in value:
                        self.text(column, "the name of a column", 80)
                else:
                    self.require(name in known, f"{name!r:.40} is no measure of the task")

    # -- lines

    def header(self, body: Mapping[str, Any]) -> None:
        plan, account = self.agreement.plan, self.agreement.account
        self.require(body.get("void") in (None, PUBLIC_SEED), "it is void for an unknown reason")
        self.require(_TIME.fullmatch(str(body.get("started"))) is not None, "it has no date")
        versions = body.get("versions")
        listed = isinstance(versions, Mapping) and len(versions) <= 20
        self.require(listed, "versions are not listed")
        for name, version in dict(versions or {}).items():
            self.text(name, "the name of a package", 40)
            self.text(version, "a version", 80)
        expected = {
            "guarantee": plain_json(account.as_json()),
            "plan_file": digest_of(plan.to_toml()),
            "plan_hash": plan.hash,
            "silos": list(self.agreement.names),
            "records_are": None,
            "own_model": None,
            "no_ledger": NO_LEDGER_HERE,
            "arithmetic": {},
            **{key: body.get(key) for key in ("void", "started", "versions")},
        }
        if plan.training.start_from is not None:
            self._start(body.get("start"), plan.training.start_from)
            expected["start"] = body["start"]
        differing = [
            key for key in {**expected, **body} if not _alike(expected.get(key), body.get(key))
        ]
        self.require(not differing, f"{', '.join(sorted(differing))[:80]} of its first line")

    def _start(self, told: Any, named: str) -> None:
        """Which model the run of another plan has released is the server's word, as it is of every
        later round's model.
        """
        begun = from_json(StartedFrom, told, where=f"{self.where}, start")
        self.require(
            begun.is_named(named) and _MODEL.fullmatch(begun.model) is not None,
            "it begins with another model than the plan",
        )
        for value in asdict(begun).values():
            if isinstance(value, str):
                self.text(value, "where its start comes from")

    def event(self, body: Mapping[str, Any]) -> None:
        self.require(set(body) == {"event", "detail", "time"}, "an event has other fields")
        self.require(_TIME.fullmatch(str(body["time"])) is not None, "an event has no date")
        check = self._events.get(str(body["event"]))
        detail = body["detail"]
        self.require(check is not None and isinstance(detail, Mapping), "an event is not known")
        if check is not None:
            check(detail)

    @property
    def _events(self) -> Mapping[str, Callable[[Mapping[str, Any]], None]]:
        return {
            "invited": self._invited,
            "aborted": self._aborted,
            "measured": lambda detail: None,  # by its type, and `measured`
            "resumed": lambda detail: self._keys(detail, {"after_round"}, self._after_round),
            "audit": lambda detail: self._keys(detail, {"trail", "lines", "last"}, self._head),
            "released": self._released,
            DISAGREED: self._disagreed,
        }

    def _keys(
        self,
        detail: Mapping[str, Any],
        known: set[str],
        check: Callable[[Mapping[str, Any]], None],
        optional: Iterable[str] = (),
    ) -> None:
        self.require(
            known - set(optional) <= set(detail) <= known, "an event has other fields than ours"
        )
        check(detail)

    def _after_round(self, detail: Mapping[str, Any]) -> None:
        self.number(detail["after_round"], 0, self.agreement.rounds)

    def _head(self, detail: Mapping[str, Any]) -> None:
        self.number(detail["lines"], 0, 1 << 62)
        digits = _HEX.fullmatch(str(detail["last"])) and str(detail["trail"]).isalnum()
        self.require(bool(digits) and len(str(detail["trail"])) <= 64, "a head is none")

    def _asked(self, detail: Mapping[str, Any]) -> None:
        self.number(detail["round"], 1, self.agreement.rounds)
        self.require(detail.get("purpose", "metrics") == "metrics", "a sum has another purpose")

    def _invited(self, detail: Mapping[str, Any]) -> None:
        known = {"round", "silos", "keys", "purpose"}
        self._keys(detail, known, self._asked, optional=("keys", "purpose"))
        self.names(detail["silos"])
        digits = _HEX.fullmatch(str(detail.get("keys", "0" * 64)))
        self.require(digits is not None, "a key set has no name")

    def _aborted(self, detail: Mapping[str, Any]) -> None:
        self._keys(detail, {"round", "reason", "purpose"}, self._asked, optional=("purpose",))
        self.text(detail["reason"], "a reason")

    def _disagreed(self, detail: Mapping[str, Any]) -> None:
        self._keys(detail, {"round", "pairs", "liars", "unopened"}, self._asked)
        self.names(detail["liars"])
        self.names(detail["unopened"])
        for pair in detail["pairs"]:
            self.require(isinstance(pair, list) and len(pair) == 2, "a pair is none")
            self.names(list(dict.fromkeys(pair)))

    def _released(self, detail: Mapping[str, Any]) -> None:
        released = from_json(Released, detail, where=self.where)
        self.number(released.round, 1, self.agreement.rounds)
        named = _MODEL.fullmatch(released.model_hash) is not None
        known = _HEX.fullmatch(released.model_facts or "0" * 64) is not None
        self.require(named and known, "a model has no name")

    # -- rounds and summary

    def rounds(self, run: RunFolder) -> None:
        names, before = self.agreement.names, 0
        for link in (each for each in run.links if each.kind == "round"):
            self.require(not link.body.get("metrics"), "a round brings its own measures")
        for entry in run.rounds():
            self.number(entry.round, before + 1, self.agreement.rounds)
            before = entry.round
            self.names(entry.survivors)
            self.require(
                entry.dropped == tuple(name for name in names if name not in entry.survivors),
                f"round {entry.round} loses a silo",
            )
            self.require(entry.delta == self.agreement.plan.privacy.delta, "a round has another δ")
            self.require(_HEX.fullmatch(entry.round_id) is not None, "a round has no id")
            simulated = [name for name in _OF_SIMULATIONS if getattr(entry, name) is not None]
            self.require(
                not simulated and entry.counts_are == "none", "a round tells what no server knows"
            )
            self.require(set(entry.seconds) <= _STAGES | {"evaluate"}, "a round has other stages")
            self.amounts(entry.bytes_up, entry.bytes_down, *entry.seconds.values())
            for line in entry.notes:
                self.text(line, "a note")
            for norm in (entry.headroom_bits, entry.update_norm, entry.noise_norm_expected):
                self.require(norm is None or math.isfinite(norm), "a norm is no number")

    def summary(self, run: RunFolder) -> None:
        """The summary follows from plan and rounds."""
        summary, rounds = run.summary or {}, run.rounds()
        computed = summary_of(
            run.plan,
            self.agreement.account,
            rounds,
            void=run.void,
            seconds=sum(sum(entry.seconds.values()) for entry in rounds),
        )
        given = {key: summary.get(key) for key in ("finished", "model_hash", "model_facts")}
        self.require(_TIME.fullmatch(str(given["finished"])) is not None, "it ends without a date")
        self.require(_MODEL.fullmatch(str(given["model_hash"])) is not None, "a model has no name")
        facts = given["model_facts"]
        self.require(facts is None or bool(_HEX.fullmatch(str(facts))), "a model has no facts")
        expected = {key: value for key, value in given.items() if key in summary} | plain_json(
            computed
        )
        differing = [
            key
            for key in {**expected, **summary}
            if not _alike(expected.get(key), summary.get(key))
        ]
        self.require(not differing, f"{', '.join(sorted(differing))[:80]} of its summary")


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are the same, numbers up to what another machine rounds otherwise."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return set(one) == set(other) and all(_alike(one[key], other[key]) for key in one)
    if _is_list(one) and _is_list(other):
        return len(one) == len(other) and all(map(_alike, one, other))
    if _is_number(one) and _is_number(other):
        return one == other or math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and bool(one == other)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
