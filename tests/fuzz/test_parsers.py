"""Whatever bytes arrive, nothing but a declared error comes out. Messages, tables and ledgers are
fuzzed next to their own tests.

Two kinds of input: rubbish, and valid files with a few characters changed, which get much further
    into a parser.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sumus.books import Policy
from sumus.errors import PlanError, SumusError
from sumus.files import Chain, decode_arrays, encode_arrays
from sumus.parties.sums import pack_model, unpack_model
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import SERVER_NAME, FileRoundGuard, Identity, Roster

BOUNDED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PLANS = [
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parents[2] / "plans").glob("*.toml"))
]
TOKENS = st.sampled_from(
    [
        "-1",
        "0",
        "1e999",
        "nan",
        "inf",
        "true",
        '""',
        "[]",
        "{}",
        "[1, 2]",
        "99999999999999999999",
        "1e-300",
        '"x"',
        "[[1]]",
        "2024-01-01",
    ]
)


@st.composite
def damaged(draw: st.DrawFn, texts: list[str]) -> str:
    """A valid text with up to three values, lines or stretches replaced."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        lines = text.split("\n")
        number = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["value", "drop", "twice", "insert"]))
        if how == "value" and "=" in lines[number]:
            lines[number] = lines[number].split("=")[0] + "= " + draw(TOKENS)
        elif how == "drop":
            del lines[number]
        elif how == "twice":
            lines.insert(number, lines[number])
        else:
            place = draw(st.integers(0, len(lines[number])))
            lines[number] = (
                lines[number][:place] + draw(st.text(max_size=3)) + lines[number][place:]
            )
        text = "\n".join(lines) or " "
    return text


@BOUNDED
@given(st.one_of(st.text(max_size=200), damaged(PLANS)))
def test_plans(source: str) -> None:
    with contextlib.suppress(SumusError):
        plan = TrainingPlan.from_toml(source)
        assert TrainingPlan.from_toml(plan.to_toml()) == plan


@BOUNDED
@given(st.binary(max_size=80))
def test_plan_files(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "plan.toml"
    file.write_bytes(content)
    with contextlib.suppress(SumusError):
        TrainingPlan.load(file)


@BOUNDED
@given(
    st.sampled_from(
        [
            "privacy.epsilon",
            "federation.silos",
            "training.hidden",
            "silo.a.clip_norm",
            "data.bounds",
            "x",
            "a.b.c.d",
            "privacy",
        ]
    ),
    st.one_of(TOKENS, st.text(max_size=20)),
)
def test_overrides(key: str, value: str) -> None:
    with contextlib.suppress(SumusError):
        TrainingPlan().with_overrides({key: value})


POLICIES = [
    "[policy]\nmax_epsilon = 2.0\nmin_silos = 3\n",
    "max_epsilon = 1.0\nmax_delta = 1e-5\n",
    "",
]


@BOUNDED
@given(st.one_of(st.text(max_size=120), damaged(POLICIES)))
def test_policies(source: str) -> None:
    with contextlib.suppress(SumusError):
        Policy.from_toml(source)


IDENTITIES = [
    Identity.generate(f"silo-{index}", RandomSource.simulation(index)) for index in range(3)
]
SERVER = Identity.generate(SERVER_NAME, RandomSource.simulation(3))
ROSTERS = [
    "\n".join(identity.public_text() for identity in (*IDENTITIES, SERVER)),
    Roster.of(SERVER, IDENTITIES).to_text(),
]


@BOUNDED
@given(st.one_of(st.text(max_size=200), damaged(ROSTERS)))
def test_rosters(source: str) -> None:
    with contextlib.suppress(SumusError):
        Roster.parse(source)
    with contextlib.suppress(SumusError):
        Roster.from_public_texts(source.split("\n"))


@BOUNDED
@given(st.text(max_size=120))
def test_identities(source: str) -> None:
    with contextlib.suppress(SumusError):
        Identity.parse(source)


CHECKPOINT = encode_arrays({"iterate": np.arange(5.0), "mean": np.zeros((2, 2))}, {"round": 3})


@BOUNDED
@given(
    st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(0, len(CHECKPOINT) - 1), st.integers(1, 255), st.integers(0, 40)),
    )
)
def test_checkpoints(change: bytes | tuple[int, int, int]) -> None:
    if isinstance(change, bytes):
        content = change
    else:
        place, flip, cut = change
        content = (
            CHECKPOINT[:place]
            + bytes([CHECKPOINT[place] ^ flip])
            + CHECKPOINT[place + 1 : len(CHECKPOINT) - cut]
        )
    with pytest.raises(SumusError):
        decode_arrays(content, Path("checkpoint.npz"))


def test_an_unchanged_checkpoint_comes_back() -> None:
    arrays, meta = decode_arrays(CHECKPOINT, Path("checkpoint.npz"))
    assert np.array_equal(arrays["iterate"], np.arange(5.0))
    assert meta["round"] == 3


@BOUNDED
@given(st.binary(max_size=120))
def test_chains(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "journal.jsonl"
    file.write_bytes(content)
    with contextlib.suppress(SumusError):
        Chain.read(file, origin="fuzz")


@BOUNDED
@given(st.binary(max_size=120))
def test_round_memories(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rounds"
    file.write_bytes(content)
    with contextlib.suppress(SumusError):
        FileRoundGuard(file).close()


@BOUNDED
@given(st.binary(max_size=60))
def test_model_payloads(payload: bytes) -> None:
    with contextlib.suppress(SumusError):
        number, purpose, parameters = unpack_model(payload)
        assert number >= 0
        assert purpose in ("model", "metrics")
        assert np.isfinite(parameters).all()


def test_a_model_comes_back_as_float32() -> None:
    number, purpose, parameters = unpack_model(pack_model(7, np.array([0.1, -2.0]), "metrics"))
    assert (number, purpose) == (7, "metrics")
    assert parameters.tolist() == [float(np.float32(0.1)), -2.0]


def test_a_plan_that_is_no_table_is_refused() -> None:
    with pytest.raises(PlanError):
        TrainingPlan.from_toml("privacy = 3")
