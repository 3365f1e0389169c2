"""δ is judged by the number of records it speaks of, and whoever takes part may know its own
noise.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from sumus.books import RoundEntry, RunFolder
from sumus.cli import main
from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee import (
    NoiseDesign,
    account,
    account_of,
    calibrated,
    certify,
    refuse_large_delta,
)
from sumus.guarantee.accounts import metrics_epsilon
from sumus.guarantee.delta import delta_caution, protected_units
from sumus.guarantee.exactness import breach_of
from sumus.plan import PublicFacts, TrainingPlan, resolve
from sumus.secagg import Terms
from sumus.secagg.terms import SECURITY_BITS, SPARSE_FROM
from sumus.tasks import LabelFacts

DIGITS = str(Path(__file__).parents[2] / "plans" / "digits.toml")
PLANS = sorted((Path(__file__).parents[2] / "plans").glob("*.toml"))


def _built(*, silos: int = 5, records: int = 200, **overrides: object) -> NoiseDesign:
    names = tuple(f"silo-{index}" for index in range(silos))
    facts = PublicFacts("made-up", names, (records,) * silos, (4,), LabelFacts(("a", "b")))
    base = {
        "privacy.epsilon": 1.0,
        "federation.rounds": 10,
        "federation.local_steps": 20,
        "aggregation.modulus_bits": 40,
    }
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    return calibrated(TrainingPlan().with_overrides(base | changes), facts)


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle and Wang 2018, theorem 8."""
    return float(
        brentq(
            lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta,
            0.0,
            50.0,
            xtol=1e-13,
        )
    )


# -- δ and the number of records


@pytest.mark.parametrize("command", ["account", "train", "plan"])
def test_a_delta_of_one_over_n_or_more_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    assert main([command, DIGITS, "--set", "privacy.delta=0.1"]) == GuaranteeError.exit_code == 3
    said = capsys.readouterr()
    line = (said.out + said.err).strip().splitlines()[-1]
    for part in (
        "privacy.delta = 0.1",
        "1,437 training records",
        "Use at most 1e-05",
        "privacy.delta_may_expose_a_record",
    ):
        assert part in line
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(("records", "refused"), [(1999, False), (2000, True), (2001, True)])
def test_the_border_is_one_over_all_records_of_the_public_bounds(
    records: int, refused: bool
) -> None:
    plan = _built(silos=5, records=records).plan.replace("privacy", delta=1e-4)
    assert protected_units(plan) == 5 * records
    if refused:
        with pytest.raises(GuaranteeError, match="must be below one over"):
            refuse_large_delta(plan)
        refuse_large_delta(plan.replace("privacy", delta_may_expose_a_record=True))
    else:
        refuse_large_delta(plan)


def test_whoever_accepts_a_large_delta_is_told_what_it_allows() -> None:
    plan = _built(records=100_000, privacy__delta=1e-4, privacy__delta_may_expose_a_record=True)
    made = certify(plan)
    assert made.delta_times_units == pytest.approx(50.0)
    allowed = "it allows for 50 of them to be exposed whole; 1e-07 or less is usual"
    assert made.cautions == (
        f"δ = 0.0001 is at least one over the 500,000 training records: {allowed}",
    )
    assert made.cautions[0] in str(made)


def test_a_million_records_at_the_usual_delta_are_cautioned_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The default of 1e-5 is refused for a million records and cautioned about from ten thousand
    on.
    """
    with pytest.raises(GuaranteeError, match="1,000,000 training records"):
        certify(_built(records=200_000))
    assert account_of(_built(records=2_000)).cautions == ()
    cautious = account_of(_built(records=2_001))
    assert len(cautious.cautions) == 1
    assert "more than a tenth of one over the 10,005 training records" in str(cautious)
    assert main(["account", DIGITS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert (found["protected_units"], found["delta_times_units"]) == (1437, pytest.approx(0.1437))
    assert len(found["cautions"]) == 1


def test_one_over_n_is_refused_for_every_n_and_the_next_smaller_number_is_not() -> None:
    """δ·n would round: 1/49 times 49 is below 1."""
    plan = _built().plan
    assert (1 / 49) * 49 < 1.0
    for records in (*range(1, 400), 10**6 + 3, 10**9 + 7):
        bound, delta = plan.replace("data", records_per_silo=(records,)), 1 / records
        for reached in (delta, math.nextafter(delta, 1.0)):
            if reached < 1.0:
                with pytest.raises(GuaranteeError, match="must be below one over"):
                    refuse_large_delta(bound.replace("privacy", delta=reached))
        below = math.nextafter(delta, 0.0)
        assert Fraction(below) < Fraction(1, records)
        refuse_large_delta(bound.replace("privacy", delta=below))


def test_test_records_that_are_more_than_training_records_are_counted_where_they_are_measured_securely() -> (
    None
):
    """Of ten records nine are tests: 100 training records stand for 900 others, which the noisy
    counts speak of at the same δ.
    """
    nine = {
        "data__test_fraction": 0.9,
        "aggregation__modulus_bits": 56,
        "privacy__delta": 1.5e-3,
        "evaluation__metrics": "none",
    }
    unmeasured = _built(silos=5, records=20, **nine)
    assert certify(unmeasured).protected_units == 100
    measured = _built(silos=5, records=20, **nine | {"evaluation__metrics": "secure"})
    assert protected_units(measured.plan) == 900
    with pytest.raises(GuaranteeError, match="one over the 900 test records"):
        certify(measured)
    seen = account_of(measured)
    assert (seen.protected_kind, seen.delta_times_units) == ("test records", pytest.approx(1.35))
    assert "1.4 of 900 test records" in str(seen) or "1.3 of 900 test records" in str(seen)
    few = measured.plan.replace("data", test_fraction=0.2)
    assert protected_units(few) == 100
    held_out = few.replace("data", test_fraction=0.4, validation_fraction=0.5)  # 0.3 are trained on
    assert protected_units(held_out) == 134


def test_a_run_of_the_past_is_cautioned_about_and_only_a_plan_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    built = calibrated(TrainingPlan.load(DIGITS).with_overrides({"privacy.delta": "0.01"}))
    names = tuple(silo.name for silo in built.silos)
    with RunFolder.create(built.plan, account_of(built), tmp_path, silos=names) as run:
        run.append(RoundEntry(round=1, round_id="r1", epsilon_spent=0.1, delta=0.01))
    assert main(["account", str(run.path)]) == 0
    assert "is at least one over the 1,437 training records" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["account", str(run.path / "plan.toml")]) == 3
    for refusing in (certify, lambda design: account(design.plan)):
        with pytest.raises(GuaranteeError, match="must be below one over"):
            refusing(built)


def test_silos_are_counted_where_a_silo_is_the_unit() -> None:
    source = {
        "privacy.unit": "silo",
        "training.algorithm": "silo",
        "training.sampling_rate": 0.5,
        "privacy.delta": 0.25,
    }
    plan = resolve(TrainingPlan().with_overrides(source | {"privacy.epsilon": 8.0}), _facts(4)).plan
    assert protected_units(plan) == 4
    assert delta_caution(plan) is not None
    with pytest.raises(GuaranteeError, match="the 4 silos"):
        refuse_large_delta(plan)


def _facts(silos: int) -> PublicFacts:
    return PublicFacts(
        "made-up",
        tuple(f"silo-{i}" for i in range(silos)),
        (200,) * silos,
        (4,),
        LabelFacts(("a", "b")),
    )


# -- curious silos


@pytest.mark.parametrize(
    ("silos", "dropouts", "colluding"),
    [(1, 0, 0), (2, 0, 0), (3, 0, 1), (3, 1, 0), (4, 1, 1), (5, 1, 1), (5, 2, 0), (51, 5, 1)],
)
def test_one_silo_may_be_curious_from_three_up_where_the_protocol_bears_it(
    silos: int, dropouts: int, colluding: int
) -> None:
    plan = TrainingPlan().with_overrides(
        {"federation.silos": silos, "federation.dropouts": dropouts}
    )
    assert plan.colluding == colluding
    resolved = resolve(plan, _facts(silos)).plan
    assert resolved.federation.colluding == colluding
    terms = {
        "silos": silos,
        "dropouts": dropouts,
        "colluding": colluding,
        "noise_contributors": resolved.noise_contributors,
    }
    Terms(plan_hash=bytes(32), length=1, **terms)  # the protocol takes it


def test_a_plan_that_says_so_counts_on_everybody_and_is_told_what_a_participant_sees() -> None:
    """ε = 1 at δ = 1e-5 is 1.47 against the other of two silos, 1.25 with 3, 1.13 with 5, 1.06 with
    10.
    """
    for silos, against in ((2, 1.47), (3, 1.25), (5, 1.13), (10, 1.06)):
        made = account_of(_built(silos=silos, federation__colluding=0))
        assert made.participant_epsilon == pytest.approx(against, abs=0.006)
        mu = math.sqrt(10.0) / made.noise_multiplier / math.sqrt((silos - 1) / silos)
        assert (
            _gaussian_epsilon(mu, 1e-5)
            <= made.participant_epsilon
            <= 1.01 * _gaussian_epsilon(mu, 1e-5)
        )
        assert f"participant  ε ≤ {made.participant_epsilon:.2f}"[:-1] in str(made)


def test_nothing_is_said_of_participants_where_they_do_not_count() -> None:
    careful = account_of(_built())
    assert (careful.participant_epsilon, "participant" in str(careful)) == (None, False)
    assert "4 of 5 silos present and honest" in careful.trust
    alone = {
        "training__algorithm": "dp-sgd",
        "training__sampling_rate": 0.5,
        "federation__local_steps": 2,
    }
    assert (
        account_of(
            _built(**alone, privacy__calibrate_to="local", federation__colluding=0)
        ).participant_epsilon
        is None
    )


def test_a_participant_that_is_noisier_than_the_rest_takes_more_away() -> None:
    names = {f"silo.silo-{index}.std_factor": share for index, share in ((0, 1.0), (1, 3.0))}
    steps = {
        "training.algorithm": "single-step",
        "training.sampling_rate": 1.0,
        "federation.local_steps": 1,
        "federation.colluding": 0,
    }
    built = _built(silos=3, **steps, **names)
    setting = built.setting(built.silos[0], known=1)
    # its own and the quiet one's
    assert setting.total.variance_grid == pytest.approx(2.0 * built.share.variance_grid)


def test_a_participant_sees_the_counts_of_test_records_with_less_noise_too() -> None:
    """Two silos, one measured model: the other silo's noise is known to it, and half the variance
    is left.
    """
    plain = {"silos": 2, "evaluation__every": 10, "noise__noise_multiplier": 100.0}
    made = account_of(_built(**plain, evaluation__metrics="secure"))
    multiplier = _built(**plain, evaluation__metrics="secure").plan.evaluation.noise_multiplier
    against = _gaussian_epsilon(math.sqrt(2.0) / multiplier, 1e-5)
    assert made.metrics_epsilon <= 1.0 < 1.4 < against
    assert against <= made.participant_epsilon <= 1.01 * against
    unmeasured = account_of(_built(**plain, evaluation__metrics="none"))
    assert unmeasured.participant_epsilon < 0.9


@pytest.mark.parametrize("colluding", [0, 1])
def test_metrics_of_a_plan_with_tuning_runs_are_those_of_the_search(colluding: int) -> None:
    one, many = (
        _built(
            evaluation__metrics="secure", privacy__tuning_runs=runs, federation__colluding=colluding
        )
        for runs in ("none", 10.0)
    )
    assert one.plan.evaluation.noise_multiplier == many.plan.evaluation.noise_multiplier
    single, search = certify(one), certify(many)  # the target is that of one run
    assert single.metrics_epsilon <= 1.0
    assert search.metrics_epsilon == metrics_epsilon(many.plan, search=True) > 1.5
    line = next(line for line in str(search).splitlines() if line.startswith("  metrics"))
    assert line.endswith("with the accounted tuning runs")
    if not colluding:
        assert search.participant_epsilon > max(
            search.metrics_epsilon, search.tuning_epsilon, single.participant_epsilon
        )


def test_the_secure_sum_is_asked_what_it_can_bear_when_the_numbers_are_known() -> None:
    line = (
        r"federation.dropouts must leave silos > 2·dropouts \+ colluding \(3 silos, "
        r"federation.colluding = 1\).*, got 1. Use at most 0"
    )
    with pytest.raises(PlanError, match=line):
        TrainingPlan().with_overrides(
            {"federation.silos": 3, "federation.dropouts": 1, "federation.colluding": 1}
        )
    unknown = TrainingPlan().with_overrides({"federation.dropouts": 1, "federation.colluding": 1})
    with pytest.raises(PlanError, match=line):
        resolve(unknown, _facts(3))
    assert resolve(unknown, _facts(4)).contributors == 2
    trusted = {
        "federation.silos": 3,
        "federation.dropouts": 1,
        "federation.colluding": 1,
        "aggregation.protocol": "trusted",
    }
    assert TrainingPlan().with_overrides(trusted).noise_contributors == 1


@pytest.mark.parametrize(
    ("silos", "dropouts", "told"),
    [
        (2, 0, None),
        (3, 0, None),
        (3, 1, "at most 0"),
        (4, 1, None),
        (5, 2, "at most 1"),
        (6, 2, None),
    ],
)
def test_an_account_says_where_dropouts_leave_no_room_for_a_curious_silo(
    silos: int, dropouts: int, told: str | None
) -> None:
    made = account_of(_built(silos=silos, federation__dropouts=dropouts))
    lines = [line for line in made.cautions if "shares what it knows" in line]
    if told is None:
        assert not lines
    else:
        assert f"federation.dropouts = {dropouts} of {silos} silos leaves no room" in lines[0]
        assert told in lines[0]
        assert lines[0] in str(made)


@pytest.mark.parametrize("path", PLANS, ids=[path.stem for path in PLANS])
def test_every_shipped_plan_says_why_it_trusts_whom_it_trusts(path: Path) -> None:
    line = next(
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("colluding")
    )
    value, _, reason = line.partition("#")
    assert len(reason.split()) >= 8
    assert "own noise" in reason
    assert value.split()[-1] in ("0", "1")


# -- the sparse graph


def test_the_sparse_graph_is_the_one_of_the_protocol() -> None:
    terms = Terms(plan_hash=bytes(32), silos=SPARSE_FROM, length=1)
    assert (terms.sparse, terms.security_bits) == (True, SECURITY_BITS)
    plan = TrainingPlan().with_overrides({"federation.silos": SPARSE_FROM})
    assert breach_of(plan) == 2.0**-SECURITY_BITS
    assert breach_of(plan.replace("federation", silos=SPARSE_FROM - 1)) == 0.0
    assert breach_of(plan.replace("aggregation", protocol="trusted")) == 0.0
    every_round = plan.replace("federation", selection="fixed", selected=SPARSE_FROM)
    assert breach_of(every_round) == every_round.federation.rounds * 2.0**-SECURITY_BITS


def test_a_small_delta_pays_for_the_sparse_graph() -> None:
    """150 silos at δ = 1e-12: 9.1e-13 of it is the graph's. One silo less has a complete graph and
    keeps its δ.
    """
    sparse, complete = (
        _built(
            silos=silos,
            records=20,
            privacy__delta=1e-12,
            noise__noise_multiplier=60.0,
            privacy__epsilon="none",
        )
        for silos in (150, 149)
    )
    assert sparse.mechanism.inexactness().breach == 2.0**-40
    assert complete.mechanism.inexactness().breach == 0.0
    spared = 1e-12 - 2.0**-40
    exact = [_gaussian_epsilon(math.sqrt(10.0) / 60.0, delta) for delta in (spared, 1e-12)]
    assert exact[1] < 0.97 * exact[0]
    for built, lowest in ((sparse, exact[0]), (complete, exact[1])):
        assert lowest <= account_of(built).epsilon <= 1.01 * lowest
    noise = {"metrics": "secure", "noise_multiplier": 20.0, "classes": 2}
    of_tests = [
        metrics_epsilon(built.plan.replace("evaluation", **noise)) for built in (sparse, complete)
    ]
    assert of_tests[0] > 1.02 * of_tests[1]


def test_a_delta_below_what_the_sparse_graph_takes_is_not_certified() -> None:
    built = _built(silos=150, records=20, privacy__delta=1e-11)
    less = NoiseDesign.of(built.resolved.replace("privacy", delta=9e-13))
    with pytest.raises(GuaranteeError, match="no finite ε"):
        account_of(less)
