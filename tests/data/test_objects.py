"""Python objects as silos: arrays, tensors, datasets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.data import Records, from_arrays
from sumus.errors import DataError


class FakeTensor:
    """What a torch tensor offers: detach, cpu and numpy."""

    def __init__(self, values: object) -> None:
        self.values = np.asarray(values)

    def __len__(self) -> int:
        return len(self.values)

    def detach(self) -> FakeTensor:
        return self

    def cpu(self) -> FakeTensor:
        return self

    def numpy(self) -> np.ndarray:
        return self.values


class FakeDataset:
    """What a torch dataset offers: a length and items."""

    def __init__(self, x: object, y: object) -> None:
        self.pairs = list(zip(np.asarray(x), np.asarray(y), strict=True))

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[object, object]:
        x, y = self.pairs[index]
        return FakeTensor(x), int(y)


X = np.arange(24.0).reshape(8, 3)
Y = np.array([0, 1, 2, 0, 1, 2, 0, 1])


@pytest.mark.parametrize(
    "silo",
    [
        (X, Y),
        [X, Y],
        (X.tolist(), Y.tolist()),
        (FakeTensor(X), FakeTensor(Y)),
        FakeDataset(X, Y),
        Records(X.astype(np.float32), Y),
    ],
    ids=["arrays", "list pair", "lists", "tensors", "dataset", "records"],
)
def test_every_kind_of_object_gives_the_same_records(silo):
    data = from_arrays([silo, silo], test_fraction=0.25)
    assert (data.shape, len(data.labels.names), len(data.silos)) == ((3,), 3, 2)
    for each in data.silos:
        assert (len(each.train), len(each.test)) == (6, 2)
        rows = np.concatenate([each.train.x, each.test.x])
        labels = np.concatenate([each.train.y, each.test.y])
        order = np.argsort(rows[:, 0])
        assert np.array_equal(rows[order], X.astype(np.float32))
        assert np.array_equal(labels[order], Y)


def test_real_torch_objects():
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    silos = [(x.requires_grad_(), y), torch.utils.data.TensorDataset(x.detach(), y)]
    data = from_arrays(silos, test_fraction=0.0)
    assert (
        sorted(data.silos[0].train.x[:, 0])
        == sorted(data.silos[1].train.x[:, 0])
        == X[:, 0].tolist()
    )


def test_own_test_records_are_kept_apart():
    data = from_arrays([(X, Y)], tests=[(X[:2] + 100, Y[:2])])
    assert len(data.silos[0].train) == 8
    assert data.silos[0].test.x[:, 0].tolist() == [100, 103]


def test_images_keep_their_shape_and_vectors_become_one_feature():
    assert from_arrays([(np.zeros((4, 1, 5, 5)), [0, 1, 0, 1])]).shape == (1, 5, 5)
    assert from_arrays([([1.0, 2.0, 3.0], [0, 1, 1])]).shape == (1,)


@pytest.mark.parametrize(
    "labels", [731 + np.arange(40) % 20, np.arange(40) % 2 * 85541, np.r_[np.zeros(60, int), 3]]
)
def test_labels_that_look_like_a_quantity_or_name_a_few_are_refused_unless_declared(labels):
    """An income read for a class would be printed as the number of classes, and with it the largest
    income.
    """
    x = np.zeros((len(labels), 2))
    with pytest.raises(DataError, match="Pass classes=") as caught:
        from_arrays([(x, labels)])
    assert not any(str(label) in str(caught.value) for label in (731, 750, 751, 85541, 85542))
    assert from_arrays([(x, labels)], classes=90000).facts().labels.names.__len__() == 90000


def test_no_message_holds_a_label():
    for labels, options in ((Y * 4321, {"classes": 3}), (Y - 4321, {}), (Y * 4321 * 10**9, {})):
        with pytest.raises(DataError) as caught:
            from_arrays([(X, labels)], **options)
        assert "4321" not in str(caught.value)
        assert "8642" not in str(caught.value)


def test_whether_records_are_whole_numbers_is_said_to_be_public():
    """One fraction in one silo changes the kind of all records."""
    whole, fraction = X.astype(int), X + 0.5
    for silos, said in (
        ([(whole, Y)] * 2, True),
        ([(whole, Y), (fraction, Y)], True),
        ([(X, Y), (fraction, Y)], False),
    ):
        assert (
            any("whole numbers" in line for line in from_arrays(silos, classes=3).assumptions)
            == said
        )


def test_two_labelled_records_are_a_dataset_and_no_pair_of_records_and_labels():
    data = from_arrays([[(X[0], 0), (X[1], 1)]], test_fraction=0.0).silos[0].train
    assert data.x.tolist() == X[:2].tolist()
    assert data.y.tolist() == [0, 1]
    pair = from_arrays([([X[0], X[1]], [0, 1])], test_fraction=0.0).silos[0].train
    assert pair.x.tolist() == X[:2].tolist()
    assert pair.y.tolist() == [0, 1]


def test_tensors_that_numpy_cannot_hold_are_refused_in_one_line():
    torch = pytest.importorskip("torch")
    for x in (torch.zeros(8, 3, dtype=torch.bfloat16), torch.eye(8).to_sparse()):
        with pytest.raises(DataError, match="numpy cannot hold"):
            from_arrays([(x, Y)])


def test_declared_classes_need_no_assumption():
    lines = from_arrays([(X, Y)], classes=10).assumptions
    assert not any("number of classes" in line for line in lines)
    assert any("number of classes, 3" in line for line in from_arrays([(X, Y)]).assumptions)


@pytest.mark.parametrize(
    ("silos", "options", "complaint"),
    [
        ([], {}, "at least one object"),
        ([(X, Y[:3])], {}, "one label per record"),
        ([(X, Y), (X[:, :2], Y)], {}, "records of shape"),
        ([(X, Y + 0.5)], {}, "not whole numbers"),
        ([(X, Y - 1)], {}, "negative label"),
        ([(X, Y)], {"classes": 2}, "labels must be 0 … 1, a larger one is there"),
        ([(X, Y)], {"names": ["a", "b"]}, "one entry per silo"),
        ([(X, Y)], {"tests": []}, "one entry per silo"),
        ([(X, Y)] * 2, {"names": ["a", "a"]}, "'a' appears twice"),
        ([(np.full((8, 3), np.nan), Y)], {}, "24 values that are not finite"),
        ([(X.astype(str), Y)], {}, "must hold numbers"),
        ([(X[:0], Y[:0])], {}, "no label to count the classes from"),
        ({"a": (X, Y)}, {"names": ["b"]}, "names must be left out"),
        ({"a": (X, Y)}, {"tests": {"b": (X, Y)}}, "same names as silos"),
        ([(X, Y)], {"tests": {"silo-0": (X, Y)}}, "must be a list like silos"),
        (["text"], {}, "pair (x, y)"),
        ([X], {}, "pair (x, y)"),
        ([{"x": X}], {}, "pair (x, y)"),
        ([([[1, 2], [3]], [0, 1])], {}, "different shapes"),
        ([(X, np.where(Y == 2, np.inf, Y))], {}, "not whole numbers"),
        ([(X, np.where(Y == 2, 2**63, Y).astype(np.uint64))], {}, "a label above"),
        ([(X, Y)], {"names": ["a\x1b[2J"]}, "must be printable text"),
        ([(X, Y)], {"names": [""]}, "must be printable text"),
        ([(X, Y)], {"name": ""}, "must be printable text"),
    ],
)
def test_wrong_objects_are_one_line_errors(silos, options, complaint):
    with pytest.raises(DataError) as caught:
        from_arrays(silos, **options)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 40), test=st.floats(0, 0.9), validation=st.floats(0, 0.9))
def test_no_record_is_lost(count, test, validation):
    x = np.arange(count, dtype=np.float32)[:, None]
    silo = from_arrays(
        [(x, np.zeros(count))], test_fraction=test, validation_fraction=validation
    ).silos[0]
    parts = (silo.train, silo.validation, silo.test)
    assert sorted(np.concatenate([part.x[:, 0] for part in parts]).tolist()) == list(range(count))
