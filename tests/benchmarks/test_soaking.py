"""`make soak`: what judges it finds a leak, a broken chain, an ε too small and a round too many."""

# ruff: noqa: E402

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scipy.integrate import quad
from scipy.stats import norm

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))  # scripts, no package

from soaking.office import Expected
from soaking.slopes import growth_of
from soaking.verifying import Verifier, chain, gaussian_epsilon

PLAN, MULTIPLIER, DELTA = "ab" * 32, 8.0, 1e-6


# -- growth


def lives(count: int, *, leak: float, seed: int = 0) -> list[list[tuple[float, float]]]:
    """Processes of which each lives for 200 rounds, with noise and another level each."""
    source = random.Random(seed)
    return [
        [
            (200.0 * life + place, 100.0 + 30.0 * source.random() + leak * place)
            for place in range(0, 200, 5)
        ]
        for life in range(count)
    ]


@pytest.mark.deep
def test_a_leak_is_found_through_noise_and_restarts() -> None:
    grown = growth_of(lives(12, leak=0.5))
    assert grown is not None
    assert not grown.is_flat(100.0)
    assert grown.low < 500.0 < grown.high


@pytest.mark.deep
def test_what_stays_level_is_flat_and_a_restart_is_no_growth() -> None:
    grown = growth_of(lives(12, leak=0.0))
    assert grown is not None
    assert grown.is_flat(10.0)
    steps = [[(float(n), 100.0 * life) for n in range(20)] for life in range(10)]
    level = growth_of(steps)
    assert level is not None
    assert level.slope == 0.0


def test_too_short_lives_say_nothing() -> None:
    assert growth_of([]) is None
    assert growth_of([[(0.0, 1.0), (1.0, 2.0)]]) is None


# -- ε


@pytest.mark.parametrize("mu", [0.05, 0.5, 3.0])
def test_the_closed_form_is_the_hockey_stick_of_two_gaussians(mu: float) -> None:
    epsilon = gaussian_epsilon(mu, DELTA)

    def excess(x: float) -> float:
        return max(0.0, float(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x)))

    begins = epsilon / mu + mu / 2.0
    delta, _ = quad(excess, begins, begins + 40.0, epsabs=1e-14, limit=200)
    assert delta == pytest.approx(DELTA, rel=1e-6)


# -- books


def lines_of(bodies: list[tuple[str, dict[str, Any]]]) -> bytes:
    """A hash chain."""
    previous, lines = "0" * 64, []
    for kind, body in bodies:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        parts = ("sumus-chain-v1", previous, kind, text)
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        lines.append({"previous": previous, "kind": kind, "body": body, "hash": digest})
        previous = digest
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def release(number: int, *, epsilon: float | None = None, round_id: str = "") -> dict[str, Any]:
    mu = math.sqrt(number) / MULTIPLIER
    return {
        "plan_hash": PLAN,
        "purpose": "model",
        "round": number,
        "round_id": round_id or f"{number:064x}",
        "epsilon": gaussian_epsilon(mu, DELTA) if epsilon is None else epsilon,
    }


class Left:
    """What a soak of two silos leaves behind."""

    def __init__(
        self,
        root: Path,
        releases: list[dict[str, Any]],
        *,
        survivors: int = 2,
        trail: tuple[tuple[str, dict[str, Any]], ...] = (("run.received", {}),),
    ) -> None:
        self.root = root
        for silo in ("Graz", "Oulu"):
            self.state(silo).mkdir(parents=True)
            ledger = self.state(silo) / "ledger-visits.jsonl"
            ledger.write_bytes(lines_of([("release", body) for body in releases]))
            (self.state(silo) / "audit-1.jsonl").write_bytes(lines_of(list(trail)))
        self.run = root / "server" / "sumus" / "runs" / PLAN / "run"
        self.run.mkdir(parents=True)
        self.run.joinpath("plan.toml").write_text(
            f"[privacy]\ndelta = {DELTA}\n[noise]\nnoise_multiplier = {MULTIPLIER}\n"
            "[federation]\nsilos = 2\ndropouts = 0\n"
        )
        rounds = [
            {
                "round": number,
                "survivors": ["Graz", "Oulu"][:survivors],
                "epsilon_spent": release(number)["epsilon"],
            }
            for number in (1, 2, 3)
        ]
        journal = lines_of([("round", body) for body in rounds])
        self.run.joinpath("journal.jsonl").write_bytes(journal)

    def state(self, silo: str) -> Path:
        return self.root / "organisations" / silo

    def verifier(self) -> Verifier:
        federation = SimpleNamespace(
            state=self.state, kit=lambda party: self.root / party, silos=["Graz", "Oulu"]
        )
        return Verifier(
            federation,  # type: ignore[arg-type]
            silos=["Graz", "Oulu"],
            lost_ledgers=[],
            expected=Expected(),
        )


BOOKS = (
    *("chains", "epsilon", "runs_equal_ledgers", "answered_once", "enough_silos", "everybody"),
    "deliveries",
)


def wrong(left: Left) -> set[str]:
    """The checks of the books that find something."""
    verifier = left.verifier()
    return {name for name in BOOKS if getattr(verifier, name)()}


def test_books_that_are_right_pass(tmp_path: Path) -> None:
    left = Left(tmp_path, [release(1), release(2), release(3)])
    assert wrong(left) == set()
    figures = left.verifier()
    figures.runs_equal_ledgers()
    assert figures.figures["entries of ledgers compared with journals"] == 6


def test_an_epsilon_too_small_by_a_millionth_is_found(tmp_path: Path) -> None:
    less = float(release(3)["epsilon"]) * (1.0 - 1e-6)
    left = Left(tmp_path, [release(1), release(2), release(3, epsilon=less)])
    assert wrong(left) == {"epsilon", "runs_equal_ledgers"}


def test_a_sum_that_is_on_no_ledger_is_found(tmp_path: Path) -> None:
    assert wrong(Left(tmp_path, [release(1), release(2)])) == {"runs_equal_ledgers"}


def test_a_round_that_was_answered_twice_is_found(tmp_path: Path) -> None:
    again = release(3) | {"round": 2}
    assert wrong(Left(tmp_path, [release(1), release(2), again])) == {"answered_once"}


def test_a_sum_of_too_few_silos_and_one_that_never_came_back_are_found(tmp_path: Path) -> None:
    left = Left(tmp_path, [release(1), release(2), release(3)], survivors=1)
    assert wrong(left) == {"enough_silos", "everybody"}


@pytest.mark.parametrize(
    "trail",
    [
        (("run.received", {}), ("refusal", {"cause": "delivery"})),
        (("refusal", {"cause": "plan"}),),
    ],
)
def test_a_run_that_was_not_believed_and_one_that_never_came_are_found(
    tmp_path: Path, trail: tuple[tuple[str, dict[str, Any]], ...]
) -> None:
    left = Left(tmp_path, [release(1), release(2), release(3)], trail=trail)
    assert wrong(left) == {"deliveries"}


@pytest.mark.parametrize("what", ["changed", "taken out"])
def test_a_line_of_a_chain_that_was_touched_is_found(tmp_path: Path, what: str) -> None:
    content = lines_of([("release", release(number)) for number in (1, 2, 3)])
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(content)
    assert len(chain(path)) == 3
    lines = content.splitlines(keepends=True)
    touched = lines[0] + lines[2]
    if what == "changed":
        touched = content.replace(b'"round": 2', b'"round": 7', 1)
    path.write_bytes(touched)
    with pytest.raises(ValueError, match="line 2"):
        chain(path)
