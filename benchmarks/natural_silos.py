"""Tables with silos of their own: every silo alone, all together without privacy, and private.

    python benchmarks/natural_silos.py choose dialysis --tables FOLDER       # on validation records
    python benchmarks/natural_silos.py measure --tables FOLDER --out FOLDER  # on test records
    python benchmarks/natural_silos.py draw --out FOLDER                     # table and figures

FOLDER holds what `sumus data prepare NAME` writes. Private lines run the plan of that folder through
the secure sum with noise that is drawn, over several splits; alone and together fit the same model
without privacy by L-BFGS, with a penalty that is chosen on validation records. What is measured
already is kept, and the rest goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

import sumus
from sumus.data import FederatedData, Records, load
from sumus.plan import TrainingPlan, resolve
from sumus.report import blank_figure
from sumus.tasks import Survival
from sumus.training import Prepared, evaluate, flat_parameters, load_flat, prepare

Vector = npt.NDArray[np.float64]

EPSILONS: Final = (0.3, 1.0, 3.0)
PENALTIES: Final = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
VALIDATION: Final = 0.25
HEADLINES: Final = {
    "dialysis": ("c_index", "c-index", "67 dialysis centres: who dies when", "patient"),
    "randhie": ("r2", "R²", "RAND health experiment, 6 sites: expenses of a year", "person"),
    "covid-tests": ("auroc", "AUROC", "17 clinics: 5.7 % positive tests", "person"),
    "flights": ("r2", "R²", "16 carriers: minutes of delay", "flight"),
}
SEVERAL_ROWS: Final = ("randhie", "covid-tests")  # a person
KINDS: Final = ("by row", "own intercepts")  # of private lines besides the plan's own
NUMBERS: Final = ("randhie", "flights")  # that are learned, so that silos may keep intercepts
MONTHS: Final = range(1, 45)  # of the dialysis centres' study
LEAST_ALONE: Final = 20  # persons that a silo must have to train by itself
_COVID: Final = ("age_group", "group", "drive_through", "order_set", "payor", "patient_class")
_RAND: Final = (
    "coinsurance",
    "incentive",
    "maximum",
    "income",
    "family",
    "age",
    "female",
    "child",
    "black",
    "limited",
    "diseases",
    "good_health",
    "health",
)
CANDIDATES: Final[Mapping[str, Sequence[Mapping[str, Sequence[object]]]]] = {
    "dialysis": (
        {
            "federation.rounds": (5, 10),
            "training.clip_norm": (0.15, 0.25),
            "training.learning_rate": (16.0, 32.0),
        },
    ),
    "randhie": (
        {"training.feature_norm": (None, 4.0, 3.0, 2.5, 2.0)},
        {"data.columns": (_RAND,), "training.feature_norm": (None, 3.0, 2.0)},
        {
            "training.algorithm": ("convex-pass",),
            "training.batch_size": (16.0, 64.0),
            "training.learning_rate": (0.5, 2.0),
            "federation.rounds": (5,),
        },
    ),
    "covid-tests": (
        {"training.model": ("linear", "softmax", "logistic")},
        {"data.columns": (_COVID, (*_COVID, "gender"), (*_COVID, "gender", "day"))},
        {
            "training.algorithm": ("convex-pass",),
            "training.batch_size": (64.0, 512.0),
            "training.learning_rate": (4.0, 16.0),
            "federation.rounds": (5,),
        },
        {
            "training.algorithm": ("single-step",),
            "training.sampling_rate": (1.0,),
            "training.clip_norm": (0.5,),
            "training.learning_rate": (16.0, 64.0),
            "training.server_momentum": (0.8,),
            "federation.rounds": (10,),
        },
    ),
    "flights": ({},),
}
"""Grids that `choose` tries on validation records, at ε = 1."""


def main() -> None:
    """Parse, do, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("choose", "measure", "draw"))
    parser.add_argument("names", nargs="*", help=f"of {', '.join(HEADLINES)}; omitted: all")
    parser.add_argument("--tables", type=Path, default=Path())
    parser.add_argument("--out", type=Path, default=Path("natural-silos"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="the lines without privacy alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.names or list(HEADLINES)
    for name in names:
        if options.what == "choose":
            choose(name, options.tables, range(options.seeds))
        elif options.what == "measure":
            measure(name, options.tables, options.out, range(options.seeds), plain=options.plain)
    if options.what != "choose" and not options.plain:
        draw(names, options.out)


# -- plans


def plan_of(name: str, tables: Path, seed: int, **changes: object) -> TrainingPlan:
    """The plan that was written with a table, with a split of its own; `section__key=value`."""
    plan = TrainingPlan.load(tables / f"{name}.toml").replace("data", split_seed=seed)
    sections: dict[str, dict[str, object]] = {}
    for key, value in changes.items():
        section, entry = key.split("__")
        sections.setdefault(section, {})[entry] = value
    for section, entries in sections.items():
        plan = plan.replace(section, **entries)
    return plan


def local_intercepts(name: str, tables: Path, seed: int, epsilon: float) -> float:
    """A private run whose silos keep their own intercepts, measured at home by the run itself."""
    plan = plan_of(
        name,
        tables,
        seed,
        privacy__epsilon=epsilon,
        training__local_parameters="intercept",
    )
    with tempfile.TemporaryDirectory() as folder:
        run = sumus.train(
            plan, options=sumus.RunOptions(root=Path(folder), ledger=False, threads=1)
        )
        return float(run.metrics[HEADLINES[name][0]])


def private_model(plan: TrainingPlan, data: FederatedData | None = None) -> Vector:
    """Run a plan with the real protocol and noise; the released parameters."""
    with tempfile.TemporaryDirectory() as folder:
        run = sumus.train(
            plan,
            silos=data,
            name=None if data is None else plan.data.path,
            options=sumus.RunOptions(root=Path(folder), ledger=False, threads=1),
        )
        return np.asarray(flat_parameters(run.module).numpy(), dtype=np.float64)


def rows_alone(data: FederatedData) -> FederatedData:
    """The same split with every row of the training part as a unit of its own."""

    def each(records: Records) -> Records:
        return replace(records, persons=None)

    silos = [
        replace(
            silo, train=each(silo.train), validation=each(silo.validation), test=each(silo.test)
        )
        for silo in data.silos
    ]
    return replace(data, silos=tuple(silos))


# -- without privacy


def fitted(prepared: Prepared, records: Records, plan: TrainingPlan, penalty: float) -> Vector:
    """The minimiser of the mean loss over persons plus penalty/2 times the squared weights."""
    task, model = plan.task, prepared.model.double()
    x = torch.from_numpy(np.asarray(records.x, dtype=np.float64))
    y = torch.from_numpy(records.y)
    weights = torch.from_numpy(records.weights("mean")) / records.units
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-9
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        squares = sum((parameter**2).sum() for parameter in model.parameters())
        loss = (weights * task.loss(model(x), y)).sum() + penalty / 2.0 * squares
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    vector = flat_parameters(model).detach().numpy().astype(np.float64)
    model.float()
    return vector


def joined(data: FederatedData, *parts: str) -> Records:
    """Parts of all silos together."""
    return Records.joined([getattr(silo, part) for silo in data.silos for part in parts])


def scored(prepared: Prepared, plan: TrainingPlan, parameters: Vector, records: Records) -> float:
    """The headline measure of these experiments."""
    name = Path(plan.data.path or "").stem
    if not isinstance(plan.task, Survival):
        metrics = evaluate(prepared.model, parameters, records, task=plan.task)
        return float(metrics[HEADLINES[name][0]])
    load_flat(prepared.model, torch.from_numpy(parameters))
    with torch.no_grad():
        risks = prepared.model(torch.from_numpy(np.asarray(records.x)))[:, 0].double().numpy()
    months = by_month(plan).task.exact(risks, records.y, weights=records.weights("mean"))
    return float(months["c_index"])


def by_month(plan: TrainingPlan) -> TrainingPlan:
    """The same plan with an interval for every month: its c-index is Harrell's of exact times."""
    return plan.replace("data", intervals=tuple(float(month) for month in MONTHS))


def with_months(plan: TrainingPlan, data: FederatedData) -> FederatedData:
    """Test and validation records whose labels are exact months, for measuring only."""
    task = plan.task
    if not isinstance(task, Survival):
        return data
    whole = load(by_month(plan).replace("data", test_fraction=0.0, validation_fraction=0.0))
    exact: dict[tuple[str, bytes, int], list[int]] = {}
    for silo in whole.silos:
        codes = silo.train.y
        times, events = codes // 2 + codes % 2, codes % 2
        coarse = task.encode(times.astype(np.float64), events)
        for x, code, held in zip(silo.train.x, coarse, codes, strict=True):
            exact.setdefault((silo.name, x.tobytes(), int(code)), []).append(int(held))

    def found(name: str, records: Records) -> Records:
        held = [
            exact[name, x.tobytes(), int(code)].pop(0)
            for x, code in zip(records.x, records.y, strict=True)
        ]
        return replace(records, y=np.array(held, dtype=np.int64))

    silos = [
        replace(
            silo, validation=found(silo.name, silo.validation), test=found(silo.name, silo.test)
        )
        for silo in data.silos
    ]
    return replace(data, silos=tuple(silos))


def parts_of(plan: TrainingPlan) -> tuple[FederatedData, Prepared, FederatedData]:
    """The records of a plan, what trains on them, and the same records to be measured on."""
    data = load(plan)
    filled = resolve(plan, data.facts()).plan  # lengths of rows among it
    return data, prepare(filled, data), prepare(filled, with_months(plan, data)).data


def without_privacy(name: str, tables: Path, seed: int) -> dict[str, float]:
    """All silos together, and every silo alone: measured on the test records of all silos, and in
    regression of its own too.
    """
    plan = plan_of(name, tables, seed, data__validation_fraction=VALIDATION)
    if plan.task.name == "regression":  # rows are shortened for the sake of privacy alone
        plan = plan.replace("training", feature_norm=None)
    _, prepared, measured = parts_of(plan)
    data = prepared.data
    validation, test = joined(measured, "validation"), joined(measured, "test")

    def best(parts: Sequence[Records]) -> float:
        """The penalty with the best mean on validation records."""
        return max(
            PENALTIES,
            key=lambda penalty: sum(
                scored(prepared, plan, fitted(prepared, part, plan, penalty), validation)
                for part in parts
            ),
        )

    together = best([joined(data, "train")])
    whole = fitted(prepared, joined(data, "train", "validation"), plan, together)
    large = [silo for silo in data.silos if silo.train.units >= LEAST_ALONE]
    penalty = best([silo.train for silo in large])
    models = [
        fitted(prepared, Records.joined([silo.train, silo.validation]), plan, penalty)
        for silo in large
    ]
    alone = [scored(prepared, plan, model, test) for model in models]
    found = {
        "together": scored(prepared, plan, whole, test),
        "alone": float(np.mean(alone)),
        "alone, best": max(alone),
        "alone, worst": min(alone),
    }
    if plan.task.name != "regression":
        return found
    home = [
        evaluate(prepared.model, model, silo.test, task=plan.task)
        for model, silo in zip(models, large, strict=True)
    ]
    at_home = plan.task.pooled(home)
    return found if at_home is None else found | {"alone, at home": at_home["r2"]}


# -- measuring


def private(name: str, tables: Path, seed: int, epsilon: float, *, rows: bool = False) -> float:
    """A private run, measured on test records; `rows`: the same split, protected row by row."""
    plan = plan_of(name, tables, seed, privacy__epsilon=epsilon)
    data, prepared, measured = parts_of(plan)
    test = joined(measured, "test")
    if not rows:
        return scored(prepared, plan, private_model(plan), test)
    changed = plan.replace("privacy", unit="record").replace("data", person_column=None)
    return scored(prepared, plan, private_model(changed, rows_alone(data)), test)


def measure(
    name: str, tables: Path, out: Path, seeds: Iterable[int], *, plain: bool = False
) -> None:
    """Every line of a table for every seed that is not there yet."""
    path = out / f"{name}.json"
    kept: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
    persons = name in SEVERAL_ROWS
    for seed in seeds:
        found = kept.setdefault(str(seed), {})
        wanted = [f"ε = {epsilon:g}" for epsilon in EPSILONS]
        lines = tuple(wanted)
        wanted += [f"{line}, by row" for line in lines] if persons else []
        wanted += [f"{line}, own intercepts" for line in lines] if name in NUMBERS else []
        begin = time.perf_counter()
        if "together" not in found:
            found |= without_privacy(name, tables, seed)
        for line in () if plain else wanted:
            if line not in found:
                epsilon = float(line.split(",")[0].removeprefix("ε = "))
                found[line] = (
                    local_intercepts(name, tables, seed, epsilon)
                    if line.endswith("intercepts")
                    else private(name, tables, seed, epsilon, rows=line.endswith("row"))
                )
        path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        told = ", ".join(f"{line} {value:.4f}" for line, value in found.items())
        print(f"{name}, seed {seed}: {told} ({time.perf_counter() - begin:.0f} s)", flush=True)


def choose(name: str, tables: Path, seeds: Iterable[int]) -> None:
    """Mean and standard error of every candidate on validation records, at ε = 1."""
    seeds = list(seeds)
    for grid in CANDIDATES[name]:
        for values in product(*grid.values()):
            changes = dict(zip(grid, values, strict=True))
            keys = {key.replace(".", "__"): value for key, value in changes.items()}
            scores = []
            for seed in seeds:
                plan = plan_of(name, tables, seed, data__validation_fraction=VALIDATION, **keys)
                plan = plan.replace("aggregation", protocol="trusted")  # the same noise, sooner
                _, prepared, measured = parts_of(plan)
                validation = joined(measured, "validation")
                scores.append(scored(prepared, plan, private_model(plan), validation))
            mean, error = spread(scores)
            print(f"{name} {changes}: {mean:.4f} ± {error:.4f}", flush=True)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    array = np.array(values, dtype=np.float64)
    error = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return float(array.mean()), float(error)


# -- showing


def draw(names: Sequence[str], out: Path) -> None:
    """A table of all sets, and a figure of each."""
    lines = [
        "| set | measure | alone | together | ε = 0.3 | ε = 1 | ε = 3 |",
        "|---|---|" + 5 * "---:|",
    ]
    for name in names:
        path = out / f"{name}.json"
        if not path.exists():
            continue
        kept: dict[str, dict[str, float]] = json.loads(path.read_text())
        found = {
            line: spread([seed[line] for seed in kept.values() if line in seed])
            for line in next(iter(kept.values()))
        }
        cells = [_cell(found[line]) for line in ("alone", "together")]
        by_unit = [f"ε = {epsilon:g}" for epsilon in EPSILONS]
        cells += [_cell(found[line]) for line in by_unit]
        lines.append(f"| {name} | {HEADLINES[name][1]} | " + " | ".join(cells) + " |")
        for kind in KINDS:
            if f"{by_unit[0]}, {kind}" in found:
                cells = [_cell(found[f"{line}, {kind}"]) for line in by_unit]
                lines.append(f"| {name}, {kind} | {HEADLINES[name][1]} | | | {' | '.join(cells)} |")
        _figure(name, found, out)
    print("\n".join(lines))


def _cell(found: tuple[float, float]) -> str:
    return f"{found[0]:.3f} ± {found[1]:.3f}"


def _figure(name: str, found: Mapping[str, tuple[float, float]], out: Path) -> None:
    """The measure against ε, between alone and together."""
    _, word, title, unit = HEADLINES[name]
    figure, (axes, *_) = blank_figure(title, 1)
    for line, colour, text in (
        ("together", "#4b5563", "all silos together, no privacy"),
        ("alone", "#be123c", "each silo alone, no privacy"),
    ):
        level, error = found[line]
        axes.axhline(level, color=colour, linestyle=(0, (5, 2)), linewidth=1.5, label=text)
        axes.axhspan(level - error, level + error, color=colour, alpha=0.12, linewidth=0)
    persons = f"ε = {EPSILONS[0]:g}, by row" in found
    curves = [("", "#15803d", f"private, one {unit}")]
    curves += [(", by row", "#1f77b4", "private, one row")] if persons else []
    at_home = f"ε = {EPSILONS[0]:g}, own intercepts" in found
    text = f"private, one {unit}, silos keep intercepts"
    curves += [(", own intercepts", "#ea580c", text)] if at_home else []
    for ending, colour, text in curves:
        points = [found[f"ε = {epsilon:g}{ending}"] for epsilon in EPSILONS]
        axes.errorbar(
            EPSILONS,
            [point[0] for point in points],
            yerr=[point[1] for point in points],
            color=colour,
            marker="o",
            capsize=3,
            label=text,
        )
    axes.set_xscale("log")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.minorticks_off()
    axes.set_xlabel("ε, proved")
    axes.set_ylabel(f"{word} on test records")
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    for ending in ("png", "svg"):
        figure.savefig(out / f"natural-{name}.{ending}", dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
