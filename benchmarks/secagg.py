"""Secure sums side by side: this protocol, Flower's SecAgg+, and the floor of bare mask expansion.

    python benchmarks/secagg.py                  the three standard cases, traffic, the other aggregators
    python benchmarks/secagg.py --quick          the standard cases alone
    python benchmarks/secagg.py --full           also 51 × 1,000,000, its memory, and growth up to 1,000 silos (minutes)
    python benchmarks/secagg.py --figure         also writes docs/figures/secagg_growth.{json,svg}

All parties run in this process, one after the other; each does its own work, so every pairwise mask
is expanded at both ends and every signature is verified by everyone who would. `set-up` is paid
once per federation, `round` every round; Flower agrees on keys anew in every round. Times are
seconds on the clock, the least of several runs; the floor is processor time, and so is `work`,
which is divided by it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from rows import Curve, Row, at_least, at_most, last_line
from sumus.paper import AGGREGATORS, sum_with
from sumus.randomness import RandomSource
from sumus.secagg import InProcessFederation, Terms, secure_sum
from sumus.secagg.graph import topology_of
from sumus.secagg.summing import default_threshold

STANDARD = [(10, 26_010), (10, 1_000_000), (51, 26_010)]
GROWTH = [10, 50, 100, 300, 1000]
GROWTH_LENGTH = 10_000
COMPLETE_IN_FULL = 300
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
PIECE = 1 << 17


def seconds(
    work: Callable[[], object], *, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The least time of several runs."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def random_vectors(silos: int, length: int) -> list[npt.NDArray[np.uint32]]:
    """Uniform words, seeded: only the speed is of interest here."""
    generator = np.random.default_rng(1)
    return [generator.integers(0, 2**32, length, dtype=np.uint32) for _ in range(silos)]


def floor_seconds(silos: int, length: int, *, repeats: int) -> float:
    """N(N − 1) expansions of d words of AES-256-CTR and nothing else."""
    zeros, out = bytes(PIECE), memoryview(bytearray(PIECE))

    def expand_all() -> None:
        for _ in range(silos * (silos - 1)):
            stream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
            for left in range(4 * length, 0, -PIECE):
                size = min(left, PIECE)
                stream.update_into(zeros if size == PIECE else zeros[:size], out[:size])

    return seconds(expand_all, repeats=repeats, clock=time.process_time)


def terms_for(silos: int, length: int, *, dropouts: int | None = None, **changes: Any) -> Terms:
    """Terms as `secure_sum` would choose them."""
    tolerated = silos - default_threshold(silos) if dropouts is None else dropouts
    return Terms(plan_hash=bytes(32), silos=silos, length=length, dropouts=tolerated, **changes)


def own_seconds(vectors: list[npt.NDArray[np.uint32]], *, repeats: int) -> dict[str, float]:
    """Set-up, round, the round's processor time, and one `secure_sum` from nothing."""
    terms = terms_for(len(vectors), len(vectors[0]))
    federation = InProcessFederation(terms, random=RandomSource())
    expected = sum(vectors[1:], start=vectors[0])

    def one_round() -> None:
        outcome = federation.run_round(RandomSource().bytes(32), lambda silo, _: vectors[silo])
        assert np.array_equal(outcome.total, expected)

    one_round()
    return {
        "set_up": seconds(
            lambda: InProcessFederation(terms, random=RandomSource()), repeats=repeats
        ),
        "round": seconds(one_round, repeats=repeats),
        "work": seconds(one_round, repeats=repeats, clock=time.process_time),
        "whole": seconds(lambda: secure_sum(vectors), repeats=repeats),
    }


def compare(silos: int, length: int) -> dict[str, float]:
    """One row of the main table."""
    from secagg_peer import flower_average

    vectors = random_vectors(silos, length)
    repeats = 7 if silos * silos * length < 10**8 else 3
    own = own_seconds(vectors, repeats=repeats)
    floor = floor_seconds(silos, length, repeats=repeats)
    floats = [vector.astype(np.float64) / 2**31 - 1.0 for vector in vectors]
    start = time.perf_counter()
    average = flower_average(floats)
    flower = time.perf_counter() - start
    assert np.allclose(average, np.mean(floats, axis=0), atol=1e-2)
    return own | {"floor": floor, "flower": flower}


def show_comparison(cases: list[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """Print the main table and return its ratios."""
    names = {
        "set_up": "set-up",
        "round": "round",
        "work": "its work",
        "floor": "floor",
        "flower": "Flower",
    }
    print(
        f"{'silos × words':>16} "
        + " ".join(f"{name:>9}" for name in names.values())
        + "  work/floor  Flower/round"
    )
    ratios = {}
    for silos, length in cases:
        row = compare(silos, length)
        ratios[f"{silos}x{length}"] = {
            "ms": 1e3 * row["whole"],
            "round_ms": 1e3 * row["round"],
            "over_floor": row["work"] / row["floor"],
            "faster_than_flower": row["flower"] / row["round"],
            "faster_than_flower_with_set_up": row["flower"] / row["whole"],
        }
        times = " ".join(f"{1e3 * row[name]:>7.1f}ms" for name in names)
        print(
            f"{silos:>4} × {length:>9} {times}  {row['work'] / row['floor']:>10.2f}  "
            f"{row['flower'] / row['round']:>12.1f}"
        )
    return ratios


def show_traffic() -> dict[str, float]:
    """Bytes both ways against the packed vector, ten silos."""
    ratios = {}
    for length in (26_010, 100_000, 1_000_000):
        result = secure_sum([np.zeros(length, dtype=np.uint32)] * 10)
        total = statistics.mean(result.bytes_up.values()) + statistics.mean(
            result.bytes_down.values()
        )
        ratios[str(length)] = total / (4 * length)
        print(
            f"traffic  10 × {length:>9}: {total:>11,.0f} bytes a silo, {ratios[str(length)]:.4f} "
            "of the packed vector"
        )
    return ratios


def show_aggregators(silos: int = 20, length: int = 26_010) -> dict[str, dict[str, float]]:
    """Every aggregator behind the same call."""
    vectors = random_vectors(silos, length)
    rows = {}
    for protocol in AGGREGATORS:
        result = sum_with(protocol, vectors)
        taken = seconds(partial(sum_with, protocol, vectors), repeats=3)
        rows[protocol] = {
            "ms": 1e3 * taken,
            "up": max(result.bytes_up.values()) / (4 * length),
            "down": max(result.bytes_down.values()) / (4 * length),
        }
        print(
            f"{protocol:>8}  {silos} × {length}: {1e3 * taken:>8.1f} ms, "
            f"{rows[protocol]['up']:.2f} vectors up, {rows[protocol]['down']:.2f} down"
        )
    return rows


def growth_row(silos: int, graph: str) -> dict[str, float | str | int | bool]:
    """Time and bytes per silo of set-up and one round with 5 % tolerated drop-outs and 5 %
    colluders, 2 % dropping out.
    """
    share = silos // 20
    terms = terms_for(silos, GROWTH_LENGTH, dropouts=share, colluding=share, graph=graph)
    vectors = random_vectors(silos, GROWTH_LENGTH)
    start = time.process_time()
    federation = InProcessFederation(terms, random=RandomSource())
    set_up = time.process_time() - start
    up, down = sum(federation.traffic.up.values()), sum(federation.traffic.down.values())
    gone = set(range(silos // 50))
    outcome = federation.run_round(
        RandomSource().bytes(32), lambda silo, _: vectors[silo], drop={"masked": gone}
    )
    finished = time.process_time() - start
    assert np.array_equal(
        outcome.total, sum(vectors[silo] for silo in range(silos) if silo not in gone)
    )
    topology = federation.server.topology
    return {
        "silos": silos,
        "graph": graph,
        "degree": topology.degree,
        "threshold": topology.threshold,
        "set_up_ms": 1e3 * set_up / silos,
        "round_ms": 1e3 * (finished - set_up) / silos,
        "set_up_bytes": (up + down) / silos,
        "round_bytes": (
            sum(federation.traffic.up.values()) + sum(federation.traffic.down.values()) - up - down
        )
        / silos,
        "total_seconds": finished,
        "everyone_ran": True,
    }


def growth_by_one_silo(silos: int) -> dict[str, float | str | int | bool]:
    """The complete graph where running everyone would take hours: one silo's work, measured, and
    its bytes, counted.
    """
    from sumus.secagg import (
        SERVER_NAME,
        Encapsulations,
        Identity,
        MemoryKeyStore,
        MemoryRoundGuard,
        Roster,
        ServerSetup,
        SiloSetup,
    )

    share = silos // 20
    terms = terms_for(silos, GROWTH_LENGTH, dropouts=share, colluding=share, graph="complete")
    random = RandomSource()
    identities = [Identity.generate(f"silo-{number:05d}", random) for number in range(silos)]
    own = Identity.generate(SERVER_NAME, random)
    roster = Roster.of(own, identities)
    setup, states = ServerSetup(own, roster, terms), []
    for identity in identities:
        state, advert = SiloSetup.start(
            identity, roster, terms=terms, random=random, post_quantum=False
        )
        setup.receive(advert)
        states.append(state)
    carrying, directories = setup.close()
    start = time.process_time()
    waiting, reply = states[0].receive(directories[0])
    set_up = time.process_time() - start
    carrying.receive(reply)
    for number in range(1, terms.minimum_survivors):
        accepted = Encapsulations(
            sender=number, session=carrying.session, keys_digest=waiting.keys_digest, sealed=()
        )
        carrying.receive(accepted.encode(identities[number]))
    server, ciphertexts = carrying.close()
    start = time.process_time()
    session, _ = waiting.receive(ciphertexts[0], MemoryRoundGuard(), MemoryKeyStore())
    set_up += time.process_time() - start
    _, invitation = server.invite(random.bytes(32))
    start = time.process_time()
    _, message = session.receive(invitation).submit(np.zeros(GROWTH_LENGTH, dtype=np.uint32))
    submit = time.process_time() - start
    start = time.process_time()
    signed = identities[1].sign(message[:80])
    for _ in range(topology_of(terms, session.session).quorum):
        roster.verify(1, signature=signed, message=message[:80])
    verify = time.process_time() - start
    certificate = 66 * terms.threshold + silos // 4
    return {
        "silos": silos,
        "graph": "complete",
        "degree": silos - 1,
        "threshold": terms.threshold,
        "set_up_ms": 1e3 * set_up,
        "round_ms": 1e3 * (submit + verify),
        "set_up_bytes": float(len(directories[0]) + 169),
        "round_bytes": float(
            len(message) + len(invitation) + certificate + 32 * silos * (1 + silos // 50)
        ),
        "total_seconds": silos * (set_up + submit + verify),
        "everyone_ran": False,
    }


def show_growth(largest: int) -> list[dict[str, float | str | int | bool]]:
    """Time and bytes per silo against the number of silos."""
    rows = []
    growth_row(3, "complete")  # compiles and warms up
    print("growth: per silo, 10,000 words, 5 % tolerated drop-outs, 5 % colluders")
    for silos in (count for count in GROWTH if count <= largest):
        rows.append(
            growth_row(silos, "complete")
            if silos <= COMPLETE_IN_FULL
            else growth_by_one_silo(silos)
        )
        if silos >= 100:
            rows.append(growth_row(silos, "sparse"))
    for row in rows:
        print(
            f"  {row['silos']:>5} {row['graph']:>9}  k = {row['degree']:>4}  t = "
            f"{row['threshold']:>4}  set-up {row['set_up_ms']:>8.2f} ms"
            f"  round {row['round_ms']:>8.2f} ms  {row['round_bytes']:>11,.0f} bytes  all "
            f"{row['total_seconds']:>7.1f} s"
            f"{'' if row['everyone_ran'] else '  (one silo measured)'}"
        )
    return rows


def write_figure(rows: list[dict[str, float | str | int | bool]]) -> None:
    """docs/figures/secagg_growth.json and .svg."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "sumus"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
    for graph, marker in (("complete", "o"), ("sparse", "s")):
        chosen = [row for row in rows if row["graph"] == graph]
        silos = [row["silos"] for row in chosen]
        axes[0].plot(
            silos, [row["round_ms"] for row in chosen], marker=marker, label=f"{graph}, round"
        )
        axes[0].plot(
            silos,
            [row["set_up_ms"] for row in chosen],
            marker=marker,
            linestyle=":",
            label=f"{graph}, set-up once",
        )
        axes[1].plot(
            silos,
            [float(row["round_bytes"]) / 1e3 for row in chosen],
            marker=marker,
            label=f"{graph}, round",
        )
    axes[1].axhline(
        4 * GROWTH_LENGTH / 1e3, color="grey", linestyle="--", label="the packed vector"
    )
    for axis, title, unit in zip(
        axes, ("Processor time per silo", "Bytes per silo, both ways"), ("ms", "kB"), strict=True
    ):
        axis.set(xscale="log", yscale="log", xlabel="silos", ylabel=unit, title=title)
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3, which="both")
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / "secagg_growth.svg", metadata={"Date": None})
    (FIGURES / "secagg_growth.json").write_text(json.dumps(rows, indent=1) + "\n")


def case_rows(cases: dict[str, dict[str, float]]) -> list[Row]:
    """Against Flower and against bare mask expansion."""
    rows = []
    for case, ratios in cases.items():
        name = case.replace("x", " × ")
        least = f"{1.0 / ratios['over_floor']:.2f} of its work: bare expansion of N(N − 1) masks"
        ours = f"a secure sum of {name}"
        faster = ratios["faster_than_flower"]
        rows.append(at_least(f"Flower's SecAgg+ over {ours}", faster, 20.0, "×", floor=least))
        if case.endswith("1000000"):
            over = ratios["over_floor"]
            rows.append(at_most(f"work of {ours} over the floor", over, 2.0, "floors", floor=least))
    return rows


def figures(summary: dict[str, Any], growth: list[dict[str, Any]]) -> tuple[list[Row], list[Curve]]:
    """Rows of all cases, traffic and memory; curves over the number of silos."""
    rows = case_rows(summary["cases"])
    traffic = summary["traffic"]["1000000"]
    rows.append(at_most("traffic of a silo, 10 × 1000000 words", traffic, 2.1, "vectors"))
    for row in growth:
        if row["silos"] == 1000 and row["graph"] == "sparse":
            seconds_in_all = row["total_seconds"]
            rows.append(
                at_most("1,000 silos × 10,000 words, all parties", seconds_in_all, 25.0, "s")
            )
    if "peak_gigabytes_51x1000000" in summary:
        peak = summary["peak_gigabytes_51x1000000"]
        rows.append(at_most("peak memory of 51 × 1000000 words, all parties", peak, 1.0, "GB"))
    curves = []
    for graph in ("complete", "sparse"):
        chosen = [row for row in growth if row["graph"] == graph]
        sizes = tuple(float(row["silos"]) for row in chosen)
        for key, cost in (("round_ms", "processor ms a silo"), ("round_bytes", "bytes a silo")):
            costs = tuple(float(row[key]) for row in chosen)
            curves.append(Curve(f"{graph} graph, a round", "silos", cost, sizes, costs))
    return rows, [curve for curve in curves if curve.sizes]


def peak_gigabytes(silos: int = 51, length: int = 1_000_000) -> float:
    """Peak memory of a fresh process that simulates everybody."""
    command = [sys.executable, __file__, "--memory-of", str(silos), str(length)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="also 51 × 1,000,000 and growth to 1,000 silos"
    )
    parser.add_argument(
        "--figure", action="store_true", help="write the growth figure of the documentation"
    )
    parser.add_argument(
        "--memory-of", nargs=2, type=int, metavar=("SILOS", "LENGTH"), help=argparse.SUPPRESS
    )
    parser.add_argument("--quick", action="store_true", help="the standard cases alone")
    options = parser.parse_args()
    if options.memory_of:
        secure_sum(random_vectors(*options.memory_of))
        # not `getrusage`, whose peak includes that of whoever started the process
        print(1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1e9)
        return
    cases = [*STANDARD, (51, 1_000_000)] if options.full else STANDARD
    if options.quick:
        print(last_line(case_rows(show_comparison(STANDARD))))
        return
    summary: dict[str, Any] = {
        "cases": show_comparison(cases),
        "traffic": show_traffic(),
        "aggregators": show_aggregators(),
    }
    rows = show_growth(1000 if options.full or options.figure else 100)
    summary["growth"] = [
        {key: row[key] for key in ("silos", "graph", "round_ms", "round_bytes")} for row in rows
    ]
    if options.full:
        summary["peak_gigabytes_51x1000000"] = peak_gigabytes()
        print(
            "peak memory of 51 × 1,000,000 in one process: "
            f"{summary['peak_gigabytes_51x1000000']:.2f} GB"
        )
    if options.figure:
        write_figure(rows)
    print(last_line(*figures(summary, rows)))


if __name__ == "__main__":
    main()
