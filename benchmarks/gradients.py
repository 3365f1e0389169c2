"""Per-record gradients side by side: a plain step, Opacus and ours, in one process and one run.

    python benchmarks/gradients.py [--threads 2] [--repeats 10] [--clock wall]

Prints one line of JSON. In every repeat each contender takes three steps in a row, as training
does, and its best step counts; `first` are the ratios of first steps, which find the caches full of
somebody else's work. `--clock cpu` counts processor time instead, for a machine that others use too
(sensible with one thread). Every step gets the same batch and starts at the same parameters. Opacus
and the plain step are run in both memory layouts and their faster one counts; ratios against
torch's default layout are given as well.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable

import torch
from opacus.grad_sample import GradSampleModule
from opacus.layers import DPMultiheadAttention
from torch import nn
from torch.nn import functional

from sumus.gradients import PerRecordGradients
from sumus.training import flat_parameters, load_flat
from sumus.training.models import build_model

RESOLUTION = 1 << 16
CLIP_NORM = 1.0
IN_A_ROW = 3
WORKLOADS = {
    "cnn": ("cnn", (1, 28, 28), 512),
    "linear": ("softmax", (1280,), 256),
    "transformer": ("transformer", (64,), 64),
}
WORDS, WIDTH, HEADS, BLOCKS = 10_000, 128, 4, 2


class Block(nn.Module):
    """Attention and a dense network, each with a normalisation behind it."""

    def __init__(self, attention: type[nn.Module]) -> None:
        super().__init__()
        self.attention = attention(WIDTH, HEADS, batch_first=True)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        attended = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        hidden = self.first(x + attended)
        inner: torch.Tensor = self.down(functional.gelu(self.up(hidden)))
        out: torch.Tensor = self.second(hidden + inner)
        return out


class Transformer(nn.Module):
    """Looked-up tokens (0 is padding) and places, blocks of attention, the mean, classes."""

    def __init__(self, places: int, attention: type[nn.Module]) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(places, WIDTH)
        self.blocks = nn.ModuleList(Block(attention) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padding = x == 0
        hidden = self.words(x) + self.places(torch.arange(x.shape[1]).expand(x.shape))
        for block in self.blocks:
            hidden = block(hidden, padding)
        kept = (~padding).to(hidden.dtype)[..., None]
        logits: torch.Tensor = self.head((hidden * kept).sum(1) / kept.sum(1).clamp_min(1.0))
        return logits


def model_for(workload: str, attention: type[nn.Module] = nn.MultiheadAttention) -> nn.Module:
    name, shape, _ = WORKLOADS[workload]
    model = (
        Transformer(shape[0], attention)
        if workload == "transformer"
        else build_model(name, shape=shape, outputs=10)
    )
    generator = torch.Generator().manual_seed(0)
    load_flat(model, 0.05 * torch.randn(flat_parameters(model).numel(), generator=generator))
    return model


def batch_for(workload: str) -> tuple[torch.Tensor, torch.Tensor]:
    _, shape, records = WORKLOADS[workload]
    generator = torch.Generator().manual_seed(1)
    if workload == "transformer":
        x = torch.randint(1, WORDS, (records, *shape), generator=generator)
        x[:, shape[0] * 3 // 4 :] = 0  # texts are filled up
    else:
        x = torch.randn(records, *shape, generator=generator)
    return x, torch.randint(0, 10, (records,), generator=generator)


def plain_step(workload: str, *, channels_last: bool) -> Callable[[], object]:
    """Forward, backward: what training without privacy does."""
    model = model_for(workload)
    model = model.to(memory_format=torch.channels_last) if channels_last else model
    x, y = batch_for(workload)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x), y).backward()

    return step


def opacus_step(workload: str, *, channels_last: bool) -> Callable[[], object]:
    """Hooks, per-sample norms, clipped sum: `DPOptimizer.clip_and_accumulate` without its noise.

    Attention is Opacus's own, as its validator would put it into the model.
    """
    model = model_for(workload, DPMultiheadAttention)
    model = model.to(memory_format=torch.channels_last) if channels_last else model
    sampled = GradSampleModule(model, loss_reduction="sum")
    x, y = batch_for(workload)

    def step() -> list[torch.Tensor]:
        sampled.zero_grad(set_to_none=True)
        for parameter in sampled.parameters():
            parameter.grad_sample = None
        functional.cross_entropy(sampled(x), y, reduction="sum").backward()
        samples = [parameter.grad_sample for parameter in sampled.parameters()]
        norms = torch.stack([sample.flatten(1).norm(2, dim=-1) for sample in samples], dim=1).norm(
            2, dim=1
        )
        factors = (CLIP_NORM / (norms + 1e-6)).clamp(max=1.0)
        return [torch.einsum("i,i...->...", factors, sample) for sample in samples]

    return step


def our_step(workload: str, *, rounding: str) -> Callable[[], object]:
    """The clipped integer sum."""
    model = model_for(workload)
    gradients, theta = PerRecordGradients(model), flat_parameters(model)
    x, y = batch_for(workload)
    return lambda: gradients.clipped_sum(
        theta, x, y, clip_norm=CLIP_NORM, resolution=RESOLUTION, rounding=rounding
    )


def contenders(workload: str) -> dict[str, Callable[[], object]]:
    layouts = (False, True) if workload == "cnn" else (False,)
    steps: dict[str, Callable[[], object]] = {}
    for layout in layouts:
        suffix = "_channels_last" if layout else ""
        steps[f"plain{suffix}"] = plain_step(workload, channels_last=layout)
        steps[f"opacus{suffix}"] = opacus_step(workload, channels_last=layout)
    return steps | {
        rounding: our_step(workload, rounding=rounding) for rounding in ("record", "sum")
    }


def milliseconds(
    workload: str, repeats: int, clock: Callable[[], float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Best time of each contender over all steps, and over first steps after another
    contender's.
    """
    steps = contenders(workload)
    times: dict[str, list[list[float]]] = {name: [] for name in steps}
    for step in steps.values():
        step(), step()
    for _ in range(repeats):
        for name, step in steps.items():
            marks = [clock()]
            for _ in range(IN_A_ROW):
                step()
                marks.append(clock())
            times[name].append([end - begin for begin, end in itertools.pairwise(marks)])
    every = {name: 1e3 * min(map(min, rows)) for name, rows in times.items()}
    return every, {name: 1e3 * min(row[0] for row in rows) for name, rows in times.items()}


def fastest(times: dict[str, float], contender: str) -> float:
    """A contender's time in its faster memory layout."""
    return min(value for name, value in times.items() if name.startswith(contender))


def _peak(
    workload: str, contender: str, threads: int, answer: multiprocessing.SimpleQueue[float]
) -> None:
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    step = contenders(workload)[contender]
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # forget the peak so far
    before = resident_megabytes("VmRSS")
    step(), step()
    answer.put(resident_megabytes("VmHWM") - before)


def resident_megabytes(field: str) -> float:
    """A memory figure of this process."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(float(line.split()[1]) / 1024 for line in file if line.startswith(field))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_megabytes(workload: str, contender: str, threads: int) -> float:
    """Memory that two steps need beyond a process that is ready to take them, in a process of its
    own.
    """
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    process = context.Process(target=_peak, args=(workload, contender, threads, answer))
    process.start()
    process.join()
    peak: float = answer.get()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--workload", choices=tuple(WORKLOADS), action="append")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    line: dict[str, object] = {
        "benchmark": "gradients",
        "threads": options.threads,
        "clock": options.clock,
    }
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    for workload in options.workload or WORKLOADS:
        times, first = milliseconds(workload, options.repeats, clock)
        line[f"{workload}_milliseconds"] = {name: round(value, 3) for name, value in times.items()}
        for rounding in ("record", "sum"):
            line[f"{workload}_{rounding}_over_plain"] = round(
                times[rounding] / fastest(times, "plain"), 3
            )
            line[f"{workload}_opacus_over_{rounding}"] = round(
                fastest(times, "opacus") / times[rounding], 2
            )
            line[f"{workload}_opacus_default_layout_over_{rounding}"] = round(
                times["opacus"] / times[rounding], 2
            )
            line[f"{workload}_first_opacus_over_{rounding}"] = round(
                fastest(first, "opacus") / first[rounding], 2
            )
        peaks = {
            name: peak_megabytes(workload, name, options.threads)
            for name in ("plain", "opacus", "record", "sum")
        }
        line[f"{workload}_peak_megabytes"] = {
            name: round(value, 1) for name, value in peaks.items()
        }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
