"""Dialysis centres that train together: who dies when, 67 centres of Brazil with 4 to 241 patients.

    python examples/hospitals.py
    python examples/hospitals.py --rounds 3    # a third of the secure sums, for a quick look

The records are real and public (SurvSet, fetched by pip and compared with a pinned SHA-256; see
docs/natural-silos.md). No centre has enough patients for a model of its own that is worth much;
together they have, and privacy costs a fraction of what joining brings. The last line names a
picture.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import sumus
from sumus.comparing import Comparison
from sumus.data import RECIPES, prepare_fetched
from sumus.errors import SumusError
from sumus.plan import TrainingPlan
from sumus.report import INK, SOFT, plain_figure, save, tidy
from sumus.runs import RunOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path("hospitals")


def main() -> None:
    parser = argparse.ArgumentParser(description="Dialysis centres that train together.")
    parser.add_argument("--rounds", type=int, help="secure sums; omitted: as many as the plan says")
    rounds = parser.parse_args().rounds
    try:
        prepare_fetched(RECIPES["dialysis"], FOLDER, lambda step: print(f"dialysis: {step}"))
    except SumusError as error:
        print(f"no table, no example: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    plan = TrainingPlan.load(FOLDER / "dialysis.toml")
    if rounds is not None:
        plan = plan.with_overrides({"federation.rounds": rounds})
    run = sumus.train(
        plan, options=RunOptions(root=FOLDER / "runs", name="hospitals", compare=True)
    )
    print(run.account)
    found = run.comparison[0]
    measure = run.plan.task.measure(found.measure, field="comparison")
    print(f"c-index {measure.text(found.value, found.plus_minus)} with the guarantee above")
    for each in found.contenders:
        print(f"  {each.title}: {measure.text(each.value, each.plus_minus)}")
    for sentence in found.sentences(measure):
        print(sentence)
    png, _ = save(FOLDER, "joining", lambda: picture(found))
    print(f"everything is in {run.path}, the picture in {png}")


def picture(found: Comparison) -> Figure:
    """Every centre alone, by its number of patients, below what all of them reach together."""
    figure = plain_figure(8.0, 4.6)
    axes = tidy(figure.subplots())
    alone = [silo for silo in found.silos if silo.value is not None]
    axes.scatter(
        [silo.train for silo in alone],
        [silo.value or 0.5 for silo in alone],
        s=[8 + silo.test for silo in alone],
        color="#9ca3af",
        label="a centre alone (larger: more test patients)",
    )
    plain = found.contender("non_private")
    lines = [("together, ε = 1", found.value, found.plus_minus, "#1d4ed8")]
    if plain is not None:
        lines.append(("together, no privacy", plain.value, plain.plus_minus, INK))
    for name, value, width, colour in lines:
        axes.axhline(value, color=colour, linewidth=1.8, label=f"{name}: {value:.3f}")
        axes.axhspan(value - (width or 0), value + (width or 0), color=colour, alpha=0.08)
    axes.axhline(0.5, color=SOFT, linestyle=":", label="the same risk for everybody")
    axes.set_xscale("log")
    axes.set_xticks([5, 10, 20, 50, 100, 200], ["5", "10", "20", "50", "100", "200"])
    axes.minorticks_off()
    axes.set_xlabel("patients that a centre trains on")
    axes.set_ylabel("c-index on the test patients of all centres")
    axes.set_title("67 dialysis centres: joining pays", loc="left", color=INK, fontsize=11)
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    return figure


if __name__ == "__main__":
    main()
