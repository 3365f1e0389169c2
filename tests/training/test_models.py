"""Models: the counts that need no torch, the public first parameters, the flat order, and clear
refusals.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus.errors import PlanError
from sumus.plan.sizes import parameter_count
from sumus.tasks import TASKS, LabelFacts
from sumus.training import flat_parameters, load_flat
from sumus.training.models import build_model


def outputs_of(name: str, classes: int) -> int:
    labels = LabelFacts(tuple(map(str, range(classes))))
    return TASKS["classification"].outputs(labels, name)


def counted(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_papers_network_has_26010_parameters() -> None:
    assert parameter_count("cnn", shape=(1, 28, 28), outputs=10) == 26_010
    assert counted(build_model("cnn", shape=(1, 28, 28), outputs=10)) == 26_010


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["softmax", "linear", "logistic", "mlp", "cnn"]),
    shape=st.one_of(
        st.tuples(st.integers(1, 40)),
        st.tuples(st.integers(1, 3), st.integers(18, 33), st.integers(18, 33)),
    ),
    classes=st.integers(2, 12),
    hidden=st.lists(st.integers(1, 9), max_size=3),
    bias=st.booleans(),
)
def test_counts_without_torch_equal_counts_with_torch(
    name: str, shape: tuple[int, ...], classes: int, hidden: list[int], bias: bool
) -> None:
    if (name == "cnn" and len(shape) == 1) or (name == "logistic" and classes != 2):
        with pytest.raises(PlanError):
            parameter_count(name, shape=shape, outputs=outputs_of(name, classes))
        return
    outputs = outputs_of(name, classes)
    model = build_model(name, shape=shape, outputs=outputs, hidden=hidden, bias=bias)
    assert parameter_count(name, shape=shape, outputs=outputs, hidden=hidden, bias=bias) == counted(
        model
    )
    assert model(torch.zeros(3, *shape)).shape == (3, 1 if name == "logistic" else classes)


def test_counting_does_not_import_torch() -> None:
    count = "parameter_count('cnn', shape=(1, 28, 28), outputs=2)"
    program = (
        f"import sys; from sumus.plan.sizes import *; {count}; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_first_parameters_depend_on_the_public_seed_only() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first = flat_parameters(build_model("cnn", shape=(1, 28, 28), outputs=10, init_seed=3))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(8)
    assert torch.equal(
        first, flat_parameters(build_model("cnn", shape=(1, 28, 28), outputs=10, init_seed=3))
    )
    assert not torch.equal(
        first, flat_parameters(build_model("cnn", shape=(1, 28, 28), outputs=10, init_seed=4))
    )


@pytest.mark.parametrize("name", ["softmax", "linear", "logistic"])
def test_convex_models_start_at_zero(name: str) -> None:
    assert not flat_parameters(build_model(name, shape=(5,), outputs=2, init_seed=9)).any()


def test_flat_vector_goes_in_and_out_unchanged() -> None:
    model = build_model("mlp", shape=(6,), outputs=3, hidden=(4,))
    wanted = torch.arange(counted(model), dtype=torch.float32)
    load_flat(model, wanted)
    assert torch.equal(flat_parameters(model), wanted)
    assert torch.equal(model[1].weight.reshape(-1), wanted[:24])
    with pytest.raises(PlanError, match="one vector"):
        load_flat(model, wanted[:-1])


def test_a_users_class_is_called_with_the_numbers_it_names() -> None:
    model = build_model("torch.nn:Identity", shape=(4,), outputs=2)
    assert isinstance(model, nn.Identity)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "message"),
    [
        ("resnet", (3, 32, 32), 10, "must be one of"),
        ("cnn", (1, 8, 8), 10, "18 × 18"),
        ("cnn", (64,), 10, "image shape"),
        ("logistic", (4,), 3, "3 classes"),
        ("softmax", (4,), 1, "at least 2"),
        ("no.such.package:Net", (4,), 2, "importable"),
        ("torch.nn:NoSuchLayer", (4,), 2, "importable"),
        ("torch.nn:Linear", (4,), 2, "constructible"),
        ("math:gcd", (4,), 2, "torch.nn.Module"),
    ],
)
def test_bad_models_are_refused_in_one_line(
    name: str, shape: tuple[int, ...], classes: int, message: str
) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        build_model(name, shape=shape, outputs=outputs_of(name, classes))
    assert "\n" not in str(caught.value)
