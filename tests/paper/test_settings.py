"""The experiments are those of the paper: rounds, silos, batches, accounting; and every private
plan can be certified.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sumus.data import public_facts
from sumus.errors import PlanError, SumusError
from sumus.guarantee import account_of, calibrated
from sumus.paper import PaperLine
from sumus.paper.experiments.comparison import GROUPS
from sumus.paper.experiments.settings import EXPERIMENTS


def found(experiment: str, name: str, rounds: int) -> PaperLine:
    return next(
        each
        for each in EXPERIMENTS[experiment].settings()
        if each.name == name and each.plan.federation.rounds == rounds
    )


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_names_are_unique_and_groups_known(experiment: str) -> None:
    settings = EXPERIMENTS[experiment].settings()
    assert len({each.key for each in settings}) == len(settings)
    assert {each.group for each in settings} == set(GROUPS)


def test_rounds_and_silos_of_the_paper() -> None:
    assert {each.plan.federation.rounds for each in EXPERIMENTS["cifar10"].settings()} == {
        10,
        20,
        40,
        80,
        160,
    }
    assert {each.plan.federation.silos for each in EXPERIMENTS["fashion-mnist"].settings()} == {10}
    assert {each.plan.federation.silos for each in EXPERIMENTS["income"].settings()} == {51}
    assert found("income", "paper-epoch", 10).plan.training.sampling_rate == 0.05


def test_only_and_rounds_and_quick() -> None:
    assert {
        each.plan.federation.rounds for each in EXPERIMENTS["income"].settings(rounds=(3, 4))
    } == {3, 4}
    assert [
        each.key for each in EXPERIMENTS["income"].settings(quick=True, only=("convex-pass",))
    ] == ["convex-pass-2-rounds"]
    with pytest.raises(PlanError, match="must be one of"):
        EXPERIMENTS["income"].settings(only=("unknown",))


def test_lists_of_epsilon_rounds_and_silos_span_a_star_around_the_papers_values() -> None:
    names = ("features-convex-pass", "cnn-fedavg")
    star = EXPERIMENTS["fashion-mnist"].settings(
        rounds=(1, 20), epsilons=(0.1, 1.0), silos=(2, 10), only=names
    )
    points = {
        (each.plan.federation.rounds, each.plan.privacy.epsilon, each.plan.federation.silos)
        for each in star
    }
    assert points == {(20, 1.0, 10), (1, 1.0, 10), (20, 0.1, 10), (20, 1.0, 2)}
    assert [each.key for each in star if each.name == names[0]] == [
        "features-convex-pass-1-rounds",
        "features-convex-pass-20-rounds",
        "features-convex-pass-20-rounds-epsilon-0.1",
        "features-convex-pass-20-rounds-2-silos",
    ]
    assert all(each.plan.privacy.epsilon == 1.0 for each in star if each.name == "cnn-fedavg"), (
        "no noise: ε means nothing"
    )


def test_a_list_without_the_papers_value_moves_the_star_to_its_first() -> None:
    found = EXPERIMENTS["fashion-mnist"].settings(
        rounds=(5,), epsilons=(3.0, 8.0), only=("features-single-step",)
    )
    assert [each.key for each in found] == [
        f"features-single-step-5-rounds-epsilon-{epsilon}" for epsilon in (3, 8)
    ]
    assert [each.plan.privacy.epsilon for each in found] == [3.0, 8.0]


def test_bins_keep_their_size_when_silos_change() -> None:
    for setting in EXPERIMENTS["fashion-mnist"].settings(
        silos=(2, 10, 100), only=("features-convex-pass",)
    ):
        facts = public_facts(setting.plan)
        assert facts.records_per_silo[0] / (
            setting.plan.federation.local_steps or 0
        ) == pytest.approx(4.0)


def test_natural_silos_cannot_be_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sumus.cli import main

    with pytest.raises(PlanError, match="51 silos are the data's own"):
        EXPERIMENTS["income"].settings(silos=(2,))
    assert main(["reproduce", "all", "--silos", "2", "--out", str(tmp_path)]) == PlanError.exit_code
    assert "Name fashion-mnist or cifar10" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--epsilons", "1,x"),
        ("--epsilons", "0"),
        ("--epsilons", "inf"),
        ("--silos", "2,0"),
        ("--rounds", "1.5"),
    ],
)
def test_bad_lists_are_refused_in_one_line(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sumus.cli import main

    assert (
        main(["reproduce", "income", option, value, "--out", str(tmp_path)]) == PlanError.exit_code
    )
    message = capsys.readouterr().err.strip()
    assert option in message
    assert "separated by commas" in message
    assert message.count("\n") == 0


def test_fashion_mnist_epoch_has_the_papers_steps_and_noise() -> None:
    """220 steps at q = 512/5600 and Mironov's conversion need σ = 6.8221 (continuous limit), so
    integers need hardly more.
    """
    plan = found("fashion-mnist", "cnn-paper-epoch", 20).plan
    facts = public_facts(plan)
    built = calibrated(plan, facts)
    assert built.plan.federation.local_steps == 11
    assert built.plan.noise.noise_multiplier == pytest.approx(6.8221, rel=2e-3)
    account = account_of(built)
    assert account.epsilon > 3.0, (
        "what is proved for the paper's algorithm is its local guarantee, far above the claim"
    )


@pytest.mark.parametrize("experiment", ["fashion-mnist"])
@pytest.mark.parametrize("group", ["proved"])
def test_every_proved_setting_meets_the_target(experiment: str, group: str) -> None:
    for setting in EXPERIMENTS[experiment].settings():
        if setting.group != group:
            continue
        facts = public_facts(setting.plan)
        account = account_of(calibrated(setting.plan, facts))
        assert account.proved, setting.key
        assert 0.98 < account.epsilon <= 1.0, setting.key
        assert account.accountant == "pld"


def test_a_missing_data_set_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sumus.cli import main
    from sumus.data import locations

    monkeypatch.setattr(locations, "search_path", lambda cache=None: (tmp_path,))
    code = main(["reproduce", "cifar10", "--quick", "--out", str(tmp_path)])
    message = capsys.readouterr().err.strip()
    assert code == SumusError.exit_code + 1
    assert message.count("\n") == 0
    assert "not on this machine" in message
