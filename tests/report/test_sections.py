"""Assumptions, ledger, signatures and what ε means, as the page tells them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sumus.books import EVIDENCE, RunFolder
from sumus.guarantee.meaning import Meaning
from sumus.report.assumptions import assumptions_of
from sumus.report.meaning import attacks_on
from sumus.report.sheets import letters_for
from sumus.report.signatures import signatures_of
from sumus.report.spent import spent_of
from sumus.report.words import Statement, statement_of
from support.synthetic_runs import SILOS, made_account, made_plan, made_round

TOTAL = {
    "dataset": "visits",
    "unit": "record",
    "epsilon": 2.50001,
    "delta": 3e-5,
    "runs": 3,
    "proved": True,
}


def finished(
    root: Path,
    summary: dict[str, Any] | None = None,
    *,
    account: dict[str, Any] | None = None,
    **header: Any,
) -> RunFolder:
    """A run of one round."""
    plan = made_plan()
    made = made_account(plan, **(account or {}))
    with RunFolder.create(plan, made, root, silos=SILOS, **header) as run:
        run.append(made_round(1))
        run.finish(summary or {})
    return RunFolder.open(run.path)


def spelled(text: str) -> str:
    return text.replace("\u00a0", " ")


# -- ledger


def test_a_ledger_is_told_before_by_and_with_the_run(tmp_path: Path) -> None:
    before = {"epsilon": 1.5, "delta": 2e-5, "runs": 2, "proved": True}
    view = spent_of(finished(tmp_path, {"ledger": TOTAL | {"before": before}}))
    assert [(when, spelled(bound), runs) for when, bound, runs in view.rows] == [
        ("Before this run", "ε ≤ 1.5 at δ = 2e-05", "2"),
        ("This run", "ε ≤ 0.9994 at δ = 1e-05", "1"),
        ("With this run", "ε ≤ 2.501 at δ = 3e-05", "3"),
    ]
    assert view.caption.startswith("Ledger of visits: ")
    assert "for one record" in view.caption
    assert "simple addition" in view.notes[0]


def test_a_first_run_has_nothing_before_it(tmp_path: Path) -> None:
    before = {"epsilon": 0.0, "delta": 0.0, "runs": 0, "proved": True}
    view = spent_of(finished(tmp_path, {"ledger": TOTAL | {"before": before}}))
    assert view.rows[0] == ("Before this run", "nothing", "0")


def test_a_total_without_a_bound_or_a_proof_says_so(tmp_path: Path) -> None:
    view = spent_of(finished(tmp_path / "a", {"ledger": TOTAL | {"epsilon": float("inf")}}))
    assert view.rows[-1][1] == "no bound"
    assert view.notes[0].startswith("There is no bound for one record: ")
    view = spent_of(finished(tmp_path / "b", {"ledger": TOTAL | {"proved": False}}))
    assert any("NOT PROVED" in note for note in view.notes)


@pytest.mark.parametrize(
    ("header", "note"),
    [
        ({"no_ledger": "switched off by whoever ran it"}, "kept here: switched off by whoever ran"),
        ({}, "holds no total"),
    ],
)
def test_a_run_without_a_total_says_why(tmp_path: Path, header: dict[str, Any], note: str) -> None:
    view = spent_of(finished(tmp_path, **header))
    assert view.rows == ()
    assert note in view.notes[0]


def test_silos_with_ledgers_of_their_own_have_room_to_fill_in_theirs(tmp_path: Path) -> None:
    run = finished(tmp_path, no_ledger="entered by every silo on a ledger of its own")
    assert not spent_of(run).own_books
    (run.path / EVIDENCE).write_text("")
    view = spent_of(run)
    assert view.own_books
    assert "only that silo can tell" in view.notes[0]


# -- signatures


@dataclass(frozen=True)
class Checked:
    """What was checked of a run's evidence."""

    fingerprints: tuple[str, ...] = ("ab" * 32,)
    signers: tuple[str, ...] = ("north", "south")
    certificates: int = 1
    accused: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


def test_a_run_of_one_process_is_signed_by_nobody(tmp_path: Path) -> None:
    run = finished(tmp_path, {"model_hash": "sha256:12"}, arithmetic={"torch": "2"})
    view = signatures_of(run, None)
    assert view.verdict == "none"
    assert "could sign anything" in view.words
    assert view.rows == (("Record", run.head), ("Plan", run.plan_hash), ("Model", "sha256:12"))


def test_signatures_that_nobody_checked_are_not_vouched_for(tmp_path: Path) -> None:
    run = finished(tmp_path)
    (run.path / EVIDENCE).write_text("")
    view = signatures_of(run, None)
    assert view.verdict == "not checked"
    assert "sumus audit evidence" in view.words
    assert "hold" not in view.words.replace("holds certificates", "")


def test_checked_signatures_name_roster_and_silos(tmp_path: Path) -> None:
    view = signatures_of(finished(tmp_path), Checked(accused=("round 2: north lied",)))
    assert view.verdict == "signed"
    assert ("Roster", "ab" * 32) in view.rows
    assert ("Signed by", "north, south") in view.rows
    assert ("Proved", "round 2: north lied") in view.rows
    crowd = signatures_of(
        finished(tmp_path), Checked(signers=tuple(f"silo {n}" for n in range(131)))
    )
    assert dict(crowd.rows)["Signed by"].endswith("silo 11 and 119 more")


def test_a_contradiction_is_not_for_signing(tmp_path: Path) -> None:
    view = signatures_of(finished(tmp_path), Checked(findings=("round 1 has no certificate",)))
    assert view.verdict == "contradicted"
    assert "Do not sign" in view.words
    assert view.findings == ("round 1 has no certificate",)


# -- assumptions


def test_doubts_stand_before_what_is_merely_public(tmp_path: Path) -> None:
    lines = ("bounds of age were declared", "warning: categories were read off the file")
    account = {"assumptions": lines, "cautions": ("δ is large",), "columns": ("age",)}
    rows = assumptions_of(finished(tmp_path, account=account))
    assert [name for name, _ in rows] == [
        "Parties",
        "Randomness",
        "Caution",
        "Warning",
        "Assumed",
        "Columns",
    ]
    assert dict(rows)["Warning"] == "categories were read off the file"


def test_a_process_that_played_all_silos_says_that_it_had_all_records(tmp_path: Path) -> None:
    alone = dict(assumptions_of(finished(tmp_path / "a", arithmetic={"torch": "2"})))
    assert "whoever ran it had all records" in alone["Parties"]
    apart = dict(assumptions_of(finished(tmp_path / "b")))
    assert "had all records" not in apart["Parties"]


def test_a_void_run_counts_on_nobody(tmp_path: Path) -> None:
    names = [name for name, _ in assumptions_of(finished(tmp_path, void="a public seed"))]
    assert "Parties" not in names
    assert "Randomness" not in names


# -- what ε means


def test_attacks_are_read_off_the_curve_where_there_is_one() -> None:
    meaning = Meaning(
        mu=0.5,
        gaussian=False,
        advantage=0.2,
        false_positive_rates=(0.001, 0.01, 0.1),
        true_positive_rates=(0.00512345, 0.04, 0.22),
    )
    account = made_account(made_plan(), meaning=meaning)
    first = attacks_on(account)[0]
    assert spelled(first.alarms_text) == "0.1 %"
    assert spelled(first.found_text) == "0.5124 %", "rounded up"
    plain = attacks_on(replace(account, meaning=None))
    assert [each.false_alarms for each in plain] == [0.001, 0.01, 0.1]
    assert all(each.found > each.false_alarms for each in plain)


def test_a_run_without_a_guarantee_has_no_table_of_attacks(tmp_path: Path) -> None:
    assert statement_of(finished(tmp_path, void="a public seed")).attacks == ()


# -- paper


def test_letters_get_smaller_with_what_must_be_said() -> None:
    def size(words: int) -> str:
        told = Statement(
            verdict="proved",
            headline="",
            terms=(("Protects", "one record"),),
            brief="",
            meaning=("word " * words,),
            gaps=(),
        )
        return letters_for(told, rows=6, bars=4, figures=True)

    assert [size(words) for words in (50, 700, 800, 900, 5000)] == [
        "",
        "dense",
        "denser",
        "densest",
        "densest",
    ]
