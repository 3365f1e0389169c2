"""Per-record gradients of twelve architectures side by side: a plain step, Opacus and ours.

    python benchmarks/gradients.py [--threads 1] [--repeats 5] [--only cnn] [--no-memory] [--quick]

Prints a table and ends with one JSON line. In every repeat each contender takes three steps in a
row, as training does, and its best step counts; contenders take turns, every step gets the same batch
and starts at the same parameters. With one thread the clock is processor time, so that a busy machine
disturbs no contender; with more it is wall time. Plain steps and Opacus are run in both memory
layouts where there are two, and their faster one counts. Opacus has its own attention and recurrence
in the model, as its validator puts them there, and its step is that of its optimiser up to the noise:
hooks, per-record norms, the clipped sum. Ours is the clipped sum of integers, rounded record by
record (`record`) or once (`sum`). Memory is what the first two steps need beyond a process that has
the model, in a process of its own; ours includes the examination of the model and compiled loops.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from opacus.grad_sample import GradSampleModule
from torch.nn import functional

from architectures import ARCHITECTURES, OURS, PEER
from rows import Curve, Row, at_least, at_most, last_line
from sumus.gradients import PerRecordGradients
from sumus.training import flat_parameters

RESOLUTION: Final = 1 << 16
CLIP_NORM: Final = 1.0
IN_A_ROW: Final = 3
LONG: Final = 300.0  # milliseconds; of longer steps one in a row is enough
CONTENDERS: Final = ("plain", "opacus", "record", "sum")
SIZES: Final = (16, 64, 256, 1024)
Step = Callable[[], object]


def plain_step(name: str, *, channels_last: bool, records: int | None = None) -> Step:
    """Forward, backward: what training without privacy does."""
    model = ARCHITECTURES[name].model(OURS)
    x, y = ARCHITECTURES[name].batch(records)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), _last(x)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x), y).backward()

    return step


def opacus_step(name: str, *, channels_last: bool, records: int | None = None) -> Step:
    """Hooks, per-record norms, clipped sum: `DPOptimizer.clip_and_accumulate`, no noise."""
    model = ARCHITECTURES[name].model(PEER)
    x, y = ARCHITECTURES[name].batch(records)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), _last(x)
    sampled = GradSampleModule(model, loss_reduction="sum")
    trained: list[Any] = [each for each in sampled.parameters() if each.requires_grad]

    def step() -> list[torch.Tensor]:
        sampled.zero_grad(set_to_none=True)
        for parameter in trained:
            parameter.grad_sample = None
        functional.cross_entropy(sampled(x), y, reduction="sum").backward()
        samples = [parameter.grad_sample for parameter in trained]
        by_layer = [sample.flatten(1).norm(2, dim=-1) for sample in samples]
        norms = torch.stack(by_layer, dim=1).norm(2, dim=1)
        factors = (CLIP_NORM / (norms + 1e-6)).clamp(max=1.0)
        return [torch.einsum("i,i...->...", factors, sample) for sample in samples]

    return step


def our_step(name: str, *, rounding: str, records: int | None = None) -> Step:
    """The clipped integer sum."""
    model = ARCHITECTURES[name].model(OURS)
    gradients, theta = PerRecordGradients(model), flat_parameters(model)
    x, y = ARCHITECTURES[name].batch(records)
    return lambda: gradients.clipped_sum(
        theta, x, y, clip_norm=CLIP_NORM, resolution=RESOLUTION, rounding=rounding
    )


def _last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def steps_of(name: str, contender: str, records: int | None = None) -> list[Step]:
    """A contender's step, in each memory layout that it has."""
    if contender in ("record", "sum"):
        return [our_step(name, rounding=contender, records=records)]
    make = plain_step if contender == "plain" else opacus_step
    layouts = (False, True) if ARCHITECTURES[name].images else (False,)
    return [make(name, channels_last=layout, records=records) for layout in layouts]


def milliseconds(
    name: str, repeats: int, clock: Callable[[], float], records: int | None = None
) -> dict[str, float]:
    """Best step of each contender, in its faster layout."""
    steps = {each: steps_of(name, each, records) for each in CONTENDERS}
    best = dict.fromkeys(CONTENDERS, float("inf"))
    for turn in range(-1, repeats):  # the first turn fills caches
        for contender, layouts in steps.items():
            for step in layouts:
                for _ in range(1 if best[contender] > LONG else IN_A_ROW):
                    begin = clock()
                    step()
                    took = 1e3 * (clock() - begin)
                    if turn >= 0:
                        best[contender] = min(best[contender], took)
    return best


def _peak(name: str, contender: str, threads: int, answer: Any) -> None:
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    peaks = []
    for step in steps_of(name, contender):
        gc.collect()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # forget the peak so far
        before = _resident_megabytes("VmRSS")
        step()
        step()
        peaks.append(_resident_megabytes("VmHWM") - before)
    answer.send(min(peaks))


def _resident_megabytes(field: str) -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(float(line.split()[1]) / 1024 for line in file if line.startswith(field))


def peak_megabytes(name: str, contender: str, threads: int) -> float:
    """Of two steps, in a process that branches off before torch has started a thread."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak, args=(name, contender, threads, sender))
    process.start()
    sender.close()
    try:
        peak: float = receiver.recv()
    finally:
        process.join()
    return peak


def rows_of(name: str, times: Mapping[str, float]) -> list[Row]:
    """The figures of one architecture."""
    faster = at_least(
        f"Opacus over a clipped step, {name}",
        times["opacus"] / times["record"],
        2.5 if name == "cnn" else 2.0,
        "× faster than Opacus",
        floor=f"{times['opacus'] / times['plain']:.2f}: a plain step",
        where=f"{times['record'] / times['plain']:.2f} plain steps: outputs and gradients as they "
        "take them, and besides every record's norm and the rounded sum",
    )
    if name != "cnn":
        return [faster]
    return [
        at_most(
            "clipped step over plain step, cnn",
            times["record"] / times["plain"],
            1.5,
            "plain steps",
        ),
        faster,
    ]


def curves_of(repeats: int, clock: Callable[[], float]) -> list[Curve]:
    """A step of the paper's network against the size of its batch."""
    times = [milliseconds("cnn", repeats, clock, records) for records in SIZES]
    names = {"plain": "plain step", "opacus": "Opacus", "record": "Sumus"}
    return [
        Curve(
            f"{word}, cnn",
            "records a batch",
            "ms a step",
            SIZES,
            tuple(round(each[contender], 3) for each in times),
        )
        for contender, word in names.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=tuple(ARCHITECTURES), action="append")
    parser.add_argument("--no-memory", action="store_true", help="measure time only")
    parser.add_argument("--quick", action="store_true", help="two repeats, time only, no curve")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.no_memory = 2, True
    names = options.only or list(ARCHITECTURES)
    peaks = (
        {}
        if options.no_memory
        else {
            name: {each: peak_megabytes(name, each, options.threads) for each in CONTENDERS}
            for name in names
        }
    )
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    clock = time.process_time if options.threads == 1 else time.perf_counter
    header = "".join(f"{each:>10}" for each in CONTENDERS)
    print(f"{'ms a step':<14}{header}{'/plain':>9}{'Opacus/':>9}{'sum':>7}   peak MB of each")
    rows, line = [], {}
    for name in names:
        times = milliseconds(name, options.repeats, clock)
        line[name] = {
            "milliseconds": {each: round(value, 3) for each, value in times.items()},
            "megabytes": {each: round(value, 1) for each, value in peaks.get(name, {}).items()},
        }
        print(
            f"{name:<14}"
            + "".join(f"{times[each]:10.2f}" for each in CONTENDERS)
            + f"{times['record'] / times['plain']:9.2f}{times['opacus'] / times['record']:9.2f}"
            + f"{times['opacus'] / times['sum']:7.2f}   "
            + "".join(f"{value:9.1f}" for value in peaks.get(name, {}).values()),
            flush=True,
        )
        rows += rows_of(name, times)
    curves = [] if options.quick or options.only else curves_of(options.repeats, clock)
    print(last_line(rows, curves, benchmark="gradients", threads=options.threads, table=line))


if __name__ == "__main__":
    main()
