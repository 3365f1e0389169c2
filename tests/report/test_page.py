"""The page without a browser: complete, self-contained, escaped, small, and never an ε without what
it means.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from sumus.books import Measurement, RunFolder, rounded_up
from sumus.errors import StorageError
from sumus.report.charts import Line, bar_chart, line_chart
from sumus.report.page import plan_differences, render_report
from support.synthetic_runs import (
    SILOS,
    made_account,
    made_comparison,
    made_plan,
    made_round,
    made_run,
)

VOID = {"meta", "line", "rect", "circle", "path", "img", "link", "br", "hr", "input"}


class Page(HTMLParser):
    """Elements and text of a page; fails on elements that are not closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def figures(self) -> set[str]:
        return {
            str(attributes["data-figure"])
            for _, attributes in self.elements
            if "data-figure" in attributes
        }


def rendered(*paths: Path) -> str:
    return render_report([RunFolder.open(path) for path in paths])


def run_with(
    tmp_path: Path, account: dict[str, Any] | None = None, void: str | None = None, **changes: Any
) -> Path:
    """A run of one round whose account or record differs."""
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan, **(account or {})), tmp_path, void=void) as run:
        run.commit(made_round(1, **changes), {"weights": np.zeros(2)}, {})
    return run.path


def test_a_page_is_well_formed_and_complete(tmp_path: Path) -> None:
    path = made_run(tmp_path)
    page, run = Page(rendered(path)), RunFolder.open(path)
    assert page.figures() == {
        "accuracy",
        "loss",
        "epsilon",
        "fairness",
        "noise",
        "clipping",
        "seconds",
        "traffic",
    }
    for needed in (
        "What ε means",
        "What it does not protect",
        "Assumptions",
        "Every analysis of this plan",
        "What privacy costs",
        "What the data set has spent",
        "Signatures",
        "Health",
    ):
        assert needed in page.text
    assert run.plan.hash in page.text
    assert all(link.hash in page.text for link in run.links)
    assert all(f"{name} {version}" in page.text for name, version in run.versions.items())
    assert all(line in page.text for line in run.plan.to_toml().split("\n") if line)
    assert "95.4\u00a0%" in "".join(page.words)
    assert "84.2\u00a0%" in "".join(page.words)


def test_a_page_needs_nothing_from_anywhere(tmp_path: Path) -> None:
    page = Page(rendered(made_run(tmp_path)))
    for tag, attributes in page.elements:
        assert tag not in ("img", "link", "iframe", "object", "embed", "base", "form")
        assert not any(
            name in ("src", "srcset", "style") or name.startswith("on") for name in attributes
        )
        assert str(attributes.get("href") or "#").startswith("#")
    assert re.findall(r"url\(|@import|https?:", rendered(made_run(tmp_path))) == []


def test_every_epsilon_stands_beside_its_meaning(tmp_path: Path) -> None:
    """Each block that shows an ε holds unit and neighbours, trust, analysis and whether it is
    proved.
    """
    source = rendered(made_run(tmp_path / "a"), made_run(tmp_path / "b", seed=1))
    source = source[source.index("<body>") :]
    blocks = re.findall(r"<(section|figure|details)\b(.*?)</\1>", source, flags=re.S)
    spoken = [
        Page(f"<{tag}{content}</{tag}>").text
        for tag, content in blocks
        if re.search(r"ε( |&nbsp;|\xa0)*(≤|spent|=)", content)
    ]
    assert len(spoken) >= 6
    for text in spoken:
        if "What it does not protect" in text or "compare only like with like" in text:
            continue  # prose that refers to the card above it
        for needed in (
            "one record of one silo, add or remove",
            "honest-but-curious",
            "convex-pass",
        ):
            assert needed in text, (needed, text[:300])
        assert "proved" in text.lower()


def test_hostile_text_is_escaped_everywhere(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script>\" onload='x' {{ 7*7 }} <u>"
    plan = made_plan()
    account = made_account(
        plan, trust=nasty, neighbours=nasty, releases=nasty, epsilon_per_silo={nasty: 0.5}
    )
    with RunFolder.create(plan, account, tmp_path, silos=(nasty,), void=nasty) as run:
        run.note(nasty, {nasty: nasty})
        record = made_round(
            1,
            silos=(nasty,),
            seconds={nasty: 1.0},
            dropped=(nasty,),
            metrics_are=nasty,
            round_id=nasty,
        )
        run.commit(record, {}, {})
        run.finish({"baselines": {nasty: 1.0, "non_private": 0.9}, nasty: nasty})
    source = rendered(run.path)
    page = Page(source)
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert not any("onload" in attributes for _, attributes in page.elements)
    assert "<u>" not in source
    assert "49" not in re.findall(r"onload='x' (\S+)", page.text)
    assert nasty in "".join(page.words)


@pytest.mark.parametrize(
    ("non_private", "words"),
    [
        (0.1, "noise is not what makes the difference"),
        (0.505, "a difference within chance"),
        (0.99, "Privacy costs: -49.0 ± 1.0 points"),
    ],
)
def test_a_model_without_privacy_that_is_worse_is_not_shown_as_if_noise_helped(
    tmp_path: Path, non_private: float, words: str
) -> None:
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path, silos=("a",)) as run:
        run.commit(made_round(1, silos=("a",), accuracy=0.5), {}, {})
        found = made_comparison(0.5, non_private=non_private)
        run.finish({"baselines": {"majority": 0.45}, "comparison": [found.as_json()]})
    text = Page(rendered(run.path)).text
    assert "Most frequent class" in text
    assert words in text
    assert "Test records" in text
    assert "no guarantee covers them" in text


def test_a_run_that_was_compared_with_a_constant_answer_only_shows_that(tmp_path: Path) -> None:
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path, silos=("a",)) as run:
        run.commit(made_round(1, silos=("a",), accuracy=0.5), {}, {})
        run.finish({"baselines": {"majority": 0.45}})
    text = Page(rendered(run.path)).text
    assert "Most frequent class" in text
    assert "no privacy" not in text


def test_names_in_charts_are_escaped() -> None:
    nasty = "<script>alert(1)</script>\"'&"
    line = Line(name=nasty, points=[(1.0, 0.5), (2.0, 0.7)])
    charts = [
        line_chart([line], label=nasty, formatter=lambda value: nasty, limit=(0.6, nasty)),
        bar_chart([1, 2], {nasty: [1.0, 2.0]}, label=nasty, formatter=lambda value: nasty),
    ]
    for chart in charts:
        assert "<script" not in chart
        page = Page(str(chart))
        assert str(page.elements[0][1]["aria-label"]).startswith(nasty)
        assert json.loads(str(page.elements[0][1]["data-values"]))["names"][0][0] == nasty


@pytest.mark.deep
def test_a_page_about_long_runs_of_many_silos_stays_below_a_megabyte(tmp_path: Path) -> None:
    states = tuple(f"state {number}" for number in range(51))
    paths = [
        made_run(tmp_path / str(seed), rounds=160, seed=seed, silos=states) for seed in range(2)
    ]
    assert len(rendered(*paths).encode()) < 1_000_000


@pytest.mark.parametrize(
    ("make", "verdict", "warning"),
    [
        (
            lambda path: run_with(path, {"proved": False, "analysis": "per-step"}),
            "not-proved",
            "NOT PROVED for the algorithm that ran",
        ),
        (
            lambda path: run_with(path, void="the noise came from a public seed"),
            "void",
            "DOES NOT HOLD FOR THIS RUN: the noise came from",
        ),
    ],
)
def test_a_guarantee_that_does_not_hold_cannot_be_overlooked(
    tmp_path: Path, make: Callable[[Path], Path], verdict: str, warning: str
) -> None:
    page = Page(rendered(make(tmp_path)))
    assert any(attributes.get("class") == f"verdict {verdict}" for _, attributes in page.elements)
    assert not any(attributes.get("class") == "verdict proved" for _, attributes in page.elements)
    assert warning in page.text


@pytest.mark.parametrize(
    ("epsilon", "verb"),
    [
        (0.5, "can hardly tell"),
        (2.0, "limited confidence"),
        (5.0, "some confidence"),
        (20.0, "almost for certain"),
    ],
)
def test_the_words_do_not_promise_more_than_the_number(
    tmp_path: Path, epsilon: float, verb: str
) -> None:
    text = Page(rendered(run_with(tmp_path, {"epsilon": epsilon}, epsilon_spent=epsilon))).text
    assert verb in text
    assert ("can hardly tell" in text) == (epsilon <= 1.0)


def test_a_run_without_privacy_says_so_and_shows_no_epsilon(tmp_path: Path) -> None:
    plan = made_plan(training__algorithm="fedavg")
    with RunFolder.create(plan, None, tmp_path) as run:
        run.commit(made_round(1, epsilon_spent=math.inf), {}, {})
    page = Page(rendered(run.path))
    assert "No privacy guarantee" in page.text
    assert "epsilon" not in page.figures()
    assert "ε ≤" not in page.text.replace("\u00a0", " ")


def test_a_void_run_shows_no_epsilon_as_spent_or_promised(tmp_path: Path) -> None:
    bound = made_account(made_plan()).epsilon
    void = run_with(tmp_path / "void", void="the noise comes from a public seed")
    for paths in ((void,), (void, run_with(tmp_path / "private"))):
        page = Page(rendered(*paths))
        text = page.text.replace("\u00a0", " ")
        assert "Spent so far no bound holds, after 1 of" in " ".join(text.split())
        assert "compare-epsilon" not in page.figures()
    alone = Page(rendered(void))
    assert "epsilon" not in alone.figures()
    words = " ".join(alone.text.replace("\u00a0", " ").split())
    assert "ε spent" not in words
    assert "No privacy guarantee" in words
    assert words.count("ε ≤") == 1  # in the words that say what does not hold
    assert f"The plan otherwise ε ≤ {rounded_up(bound)}" in words


def test_an_unfinished_run_and_one_without_rounds_have_pages_too(tmp_path: Path) -> None:
    plan = made_plan()
    RunFolder.create(plan, made_account(plan), tmp_path / "none").close()
    page = Page(rendered(next((tmp_path / "none").iterdir())))
    assert "0 of 12 rounds so far" in page.text
    assert page.figures() == set()
    page = Page(rendered(made_run(tmp_path / "some", rounds=3, finished=False)))
    assert "3 of 3 rounds so far" in page.text
    assert "What privacy costs" not in page.text


def test_values_that_are_missing_or_not_finite_leave_their_chart_out(tmp_path: Path) -> None:
    path = run_with(
        tmp_path, loss=math.nan, accuracy=None, silo_scores=None, clipped_fraction=None, update_norm=math.inf, noise_norm_expected=None,
        seconds={}, bytes_up=0, bytes_down=0, headroom_bits=None,
    )  # fmt: skip
    assert Page(rendered(path)).figures() == {"epsilon"}


def test_exact_counts_are_marked_as_a_simulations_or_left_out(tmp_path: Path) -> None:
    simulated = Page(rendered(run_with(tmp_path / "simulated", saturated=3, nonfinite=2)))
    assert "3 (exact: simulation only)" in simulated.text
    assert "2, counted as zero (exact: simulation only)" in simulated.text
    assert "exact, so for a simulation only" in simulated.text
    real = Page(rendered(run_with(tmp_path / "real", clipped_fraction=None, counts_are="none")))
    assert "exact" not in real.text
    assert "known to the silos only" in real.text


def test_what_metrics_cost_stands_beside_the_guarantee(tmp_path: Path) -> None:
    plan = made_plan()
    RunFolder.create(plan, made_account(plan, metrics_epsilon=0.71234), tmp_path).close()
    assert "ε ≤ 0.7124 at the same δ for one test record" in Page(
        rendered(next(tmp_path.iterdir()))
    ).text.replace("\u00a0", " ")


def test_a_noisy_accuracy_is_shown_with_its_error_and_its_model(tmp_path: Path) -> None:
    secure = {"metrics_are": "secure", "silo_scores": None, "counts_are": "none"}
    plan = made_plan(
        federation__rounds=2, evaluation__metrics="secure", evaluation__noise_multiplier=4.0
    )
    with RunFolder.create(plan, made_account(plan), tmp_path, silos=SILOS) as run:
        run.append(
            made_round(
                1,
                **secure,
                accuracy=0.81234,
                accuracy_plus_minus=0.0312,
                loss=0.71234,
                loss_plus_minus=0.2,
            )
        )
        told = str(render_report([run]))
        assert "81.2\u00a0% ± 3.2\u00a0%" in told
        assert "of the model of round 1, 95 %, noisy count" in told
        run.append(made_round(2, **secure, accuracy=None, loss=None))
        run.finish({"accuracy": None})
    told = str(render_report([RunFolder.open(run.path)]))
    assert "of the model of round 1, 95 %, noisy count" in told, "the last model was not measured"
    assert "of the released model" not in told
    with RunFolder.create(plan, made_account(plan), tmp_path, silos=SILOS) as run:
        run.append(
            made_round(
                1,
                **secure,
                accuracy=0.9,
                accuracy_plus_minus=0.12,
                loss=0.71234,
                loss_plus_minus=0.2,
            )
        )
        run.note("measured", asdict(Measurement(**MEASURED)))
        run.finish({"accuracy": 0.95})
    told = str(render_report([RunFolder.open(run.path)]))
    assert "of the released model, 95 %, noisy count" in told
    assert "95\u00a0% ± 12\u00a0%" in told
    assert "0.50 ± 0.13" in told


MEASURED = {
    "round": 2, "of_round": 1, "metrics": {"accuracy": 0.95, "loss": 0.5}, "metrics_plus_minus": {"accuracy": 0.1111, "loss": 0.125},
    "seconds": 0.5, "bytes_up": 7, "bytes_down": 8,
}  # fmt: skip


def test_several_runs_are_compared(tmp_path: Path) -> None:
    paths = [
        made_run(tmp_path / str(seed), rounds=5, seed=seed, privacy__delta=delta)
        for seed, delta in enumerate(("1e-5", "1e-6"))
    ]
    page = Page(rendered(*paths))
    assert {
        "compare-accuracy",
        "compare-loss",
        "compare-worst",
        "compare-epsilon",
    } <= page.figures()
    assert "Where the plans differ" in page.text
    assert "privacy.delta" in page.text
    names = [str(attributes["id"]) for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    targets = {
        str(attributes["href"])[1:] for _, attributes in page.elements if "href" in attributes
    }
    assert {"main", "run-1", "run-2"} <= targets <= set(names)
    assert "do not compare" not in page.text


def test_runs_on_different_records_say_so(tmp_path: Path) -> None:
    paths = [made_run(tmp_path / name, rounds=2, data__name=name) for name in ("digits", "income")]
    assert (
        "different records (digits, income): their measures do not compare"
        in Page(rendered(*paths)).text
    )


def test_a_run_without_privacy_is_never_drawn_as_if_it_spent_nothing(tmp_path: Path) -> None:
    """The attacker, or a careless reader, wants ε = 0 for a run that had no noise at all."""
    plan = made_plan(training__algorithm="fedavg")
    with RunFolder.create(plan, None, tmp_path / "fedavg") as run:
        for number in (1, 2):
            run.commit(made_round(number, epsilon_spent=math.inf), {}, {})
    page = Page(rendered(made_run(tmp_path / "private", rounds=2), run.path))
    assert "compare-accuracy" in page.figures()
    assert "compare-epsilon" not in page.figures()
    assert "∞" in page.text


def test_plan_differences_name_only_what_differs() -> None:
    one = {"privacy": {"delta": 1e-5, "unit": "record"}, "noise": {"mechanism": "skellam"}}
    two = {
        "privacy": {"delta": 1e-6, "unit": "record"},
        "noise": {"mechanism": "skellam", "noise_multiplier": 3.0},
    }
    assert plan_differences([one, two]) == [
        ("privacy.delta", ["1e-05", "1e-06"]),
        ("noise.noise_multiplier", ["–", "3"]),
    ]


def test_the_charts_hold_the_recorded_values(tmp_path: Path) -> None:
    path = made_run(tmp_path, rounds=6)
    rounds = RunFolder.open(path).rounds()
    page = Page(rendered(path))
    charts = {
        str(attributes["aria-label"]).split(".")[0]: attributes
        for tag, attributes in page.elements
        if attributes.get("class") == "chart"
    }
    told = json.loads(str(charts["Accuracy per round"]["data-values"]))
    assert [column[1:] for column in told["columns"]] == [
        [f"{each.round}", f"{100 * each.metrics['accuracy']:.1f}\u00a0%"] for each in rounds
    ]
    stacked = json.loads(str(charts["Seconds per stage and round"]["data-values"]))
    assert [name for name, _ in stacked["names"]] == [
        "local",
        "noise",
        "protocol",
        "server",
        "evaluate",
    ]


def test_a_damaged_run_gets_no_page(tmp_path: Path) -> None:
    path = made_run(tmp_path, rounds=3)
    file = path / "journal.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"delta":1e-05', b'"delta":1e-06', 1))
    with pytest.raises(StorageError, match=r"journal\.jsonl, line 1"):
        rendered(path)


def test_the_command_writes_beside_the_run_or_where_it_is_told(tmp_path: Path) -> None:
    import typer

    from sumus.cli.report import report_command

    app = typer.Typer()
    app.command()(report_command)
    one, two = made_run(tmp_path / "a", rounds=2), made_run(tmp_path / "b", rounds=2, seed=1)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "report.html" in run(str(one))
    assert "digits" in (one / "report.html").read_text()
    out = tmp_path / "page.html"
    answer = json.loads(run(str(one), str(two), "--out", str(out), "--json"))
    assert answer["page"] == str(out)
    assert [each["rounds"] for each in answer["runs"]] == [2, 2]
    assert "2 runs compared" in out.read_text()
    with pytest.raises(StorageError, match="is a folder"):
        run(str(one), "--out", str(tmp_path))
    with pytest.raises(StorageError, match="not a run folder"):
        run(str(tmp_path))


TABLES = {
    "classes": {
        "share": (0.93, 0.07),
        "recall": (0.99, 0.25),
        "recall_plus_minus": (0.01, 0.125),
        "precision": (0.94, 0.625),
        "precision_plus_minus": (0.01, 0.25),
    },
    "confusion": {"true_by_predicted": (1841.0, 19.0, 105.0, 35.0)},
    "roc": {
        "false_positive_rate": (0.0, 0.01, 0.2, 1.0),
        "true_positive_rate": (0.0, 0.25, 0.7, 1.0),
    },
    "reliability": {
        "predicted": (0.03, 0.2),
        "observed": (0.025, 0.15),
        "plus_minus": (0.01, 0.05),
        "share": (0.8, 0.2),
    },
}


def measured_run(tmp_path: Path, *, majority: float) -> Page:
    told = {"accuracy": 0.94, "loss": 0.21, "auroc": 0.77, "accuracy_spread": 0.04}
    path = run_with(
        tmp_path,
        metrics=told,
        metrics_plus_minus=dict.fromkeys(told, 0.0312),
        metrics_of_constant={"accuracy": majority, "loss": 0.25, "auroc": 0.5},
        metrics_tables=TABLES,
        metrics_are="secure",
    )
    return Page(rendered(path))


def test_every_measure_stands_beside_a_constant_answer(tmp_path: Path) -> None:
    page = measured_run(tmp_path, majority=0.93)
    words = " ".join("".join(page.words).split())
    assert {"roc", "reliability"} <= page.figures()
    for needed in ("How well the model does", "0.77 ± 0.04", "0.5", "93.0 %", "1,841"):
        assert needed in words
    assert "Which silo does how well is not told" in words
    assert words.index("AUROC") < words.index("Accuracy"), "a rare outcome: AUROC is read first"


def test_accuracy_is_read_first_where_a_constant_answer_says_little(tmp_path: Path) -> None:
    page = measured_run(tmp_path, majority=0.6)
    words = "".join(page.words)
    assert words.index("Accuracy") < words.index("AUROC")


def test_a_run_without_measures_has_no_such_section(tmp_path: Path) -> None:
    page = Page(rendered(run_with(tmp_path, metrics={}, metrics_are="none")))
    assert "How well the model does" not in page.text
