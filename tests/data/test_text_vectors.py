"""Columns of text: vectors by name, and the cache in front of the network."""

from __future__ import annotations

import os
import sqlite3

import numpy as np
import pytest

from sumus.data import text_vectors as module
from sumus.data.columns import TextColumn
from sumus.data.text_vectors import TEXT_WIDTHS, TextVectors, text_vectors
from sumus.errors import DataError
from sumus.plan.sections import TEXTS
from sumus.texts import hashed_words, load_sentences
from support.made_up_network import files_of, in_place_of_minilm

TEXT = TextColumn("note", ("bad knee", "no fever", "unused"), np.array([1, -1, 0, 1], np.int32))


@pytest.fixture
def network(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    return in_place_of_minilm(tmp_path, monkeypatch)


def _counted(monkeypatch):
    """Texts that the network itself reads."""
    read = []
    plain = module._sentences

    class Counting:
        def __init__(self, inner):
            self.inner = inner
            self.width, self.arithmetic = inner.width, inner.arithmetic

        def __call__(self, texts):
            read.extend(texts)
            return self.inner(texts)

    monkeypatch.setattr(module, "_sentences", lambda *where: Counting(plain(*where)))
    return read


def test_every_map_of_the_plan_has_its_width():
    assert set(TEXTS) == set(TEXT_WIDTHS)


def test_words_need_no_weights():
    encoder = TextVectors(TEXT, "words")
    out = np.zeros((4, encoder.width), np.float32)
    encoder.write(np.arange(4), out)
    np.testing.assert_array_equal(
        out[[0, 2, 3], :-1], hashed_words(["no fever", "bad knee"])[[0, 1, 0]]
    )
    np.testing.assert_array_equal(out[:, -1], [0, 1, 0, 0])
    assert not out[1, :-1].any()


def test_a_column_holds_the_networks_vectors_and_the_cache_gives_the_same_bits(
    network, tmp_path, monkeypatch
):
    read = _counted(monkeypatch)
    encoder = TextVectors(TEXT, "minilm")
    assert encoder.width == 385
    first, again = np.zeros((4, 385), np.float32), np.zeros((2, 385), np.float32)
    encoder.write(np.arange(4), first)
    assert sorted(read) == ["bad knee", "no fever"]  # each once, and nothing that no row has
    encoder.write(np.array([2, 0]), again)
    assert len(read) == 2
    np.testing.assert_array_equal(again, first[[2, 0]])
    plain = load_sentences(files_of(tmp_path / "minilm"), "minilm")(["no fever", "bad knee"])
    np.testing.assert_array_equal(first[[0, 2], :-1], plain)


def test_no_row_at_all(network):
    encoder = TextVectors(TEXT, "minilm")
    encoder.write(np.arange(0), np.zeros((0, 385), np.float32))
    encoder.write(np.array([1]), out := np.zeros((1, 385), np.float32))
    assert out.sum() == out[0, -1] == 1.0


def test_other_weights_or_arithmetic_have_a_cache_of_their_own(network, tmp_path, monkeypatch):
    first = text_vectors("minilm", ["bad knee"])
    other = in_place_of_minilm(tmp_path, monkeypatch, seed=1)
    assert other.digest != network.digest
    second = text_vectors("minilm", ["bad knee"])
    assert not np.array_equal(first, second)
    read = _counted(monkeypatch)
    monkeypatch.setattr("torch.get_num_threads", lambda: 77)
    np.testing.assert_allclose(text_vectors("minilm", ["bad knee"]), second, atol=1e-5)
    assert read == ["bad knee"]
    assert len(list((tmp_path / f"texts-{os.getuid()}").glob("*.sqlite"))) == 3


def test_what_an_interrupted_reading_left_is_used(network, monkeypatch):
    monkeypatch.setattr(module, "_TOGETHER", 1)
    read = _counted(monkeypatch)
    plain = module._sentences

    def breaking(*where):
        inner = plain(*where)
        if len(read) >= 2:
            return inner

        class Breaking:
            width, arithmetic = inner.width, inner.arithmetic

            def __call__(self, texts):
                if len(read) == 2:
                    raise KeyboardInterrupt
                return inner(texts)

        return Breaking()

    monkeypatch.setattr(module, "_sentences", breaking)
    with pytest.raises(KeyboardInterrupt):
        text_vectors("minilm", ["one", "two", "three"])
    assert read == ["one", "two"]
    text_vectors("minilm", ["one", "two", "three"])
    assert read == ["one", "two", "three"]


def test_an_entry_of_another_length_is_computed_again(network, tmp_path):
    whole = text_vectors("minilm", ["bad knee"])
    path = next((tmp_path / f"texts-{os.getuid()}").glob("*.sqlite"))
    with sqlite3.connect(path) as cache:
        cache.execute("UPDATE vectors SET vector = x'00'")
    np.testing.assert_array_equal(text_vectors("minilm", ["bad knee"]), whole)


def test_a_broken_cache_is_named_in_one_line(network, tmp_path):
    text_vectors("minilm", ["bad knee"])
    path = next((tmp_path / f"texts-{os.getuid()}").glob("*.sqlite"))
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(
        DataError, match=r"cannot be used as a cache of texts: .* Remove it"
    ) as told:
        text_vectors("minilm", ["bad knee"])
    assert "\n" not in str(told.value)


def test_without_weights_the_error_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("SUMUS_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"not on this machine\. Run: sumus data prepare minilm$"):
        text_vectors("minilm", ["bad knee"])


def test_weights_of_another_width_are_refused(network, monkeypatch):
    monkeypatch.setitem(module.TEXT_WIDTHS, "minilm", 100)
    with pytest.raises(DataError, match="make 384 numbers of a text, not 100"):
        text_vectors("minilm", ["bad knee"])


def test_what_is_loaded_are_the_bytes_that_were_compared(network, tmp_path, monkeypatch):
    """A folder that changes right after the comparison, with time and size as they were."""
    module._sentences.cache_clear()
    wanted = text_vectors("minilm", ["bad knee"])
    module._sentences.cache_clear()
    for file in (tmp_path / f"texts-{os.getuid()}").glob("*.sqlite"):
        file.unlink()
    plain, file = module.read_weights, tmp_path / "minilm" / "model.safetensors"

    def compared_then_changed(weights):
        contents = plain(weights)
        state, whole = file.stat(), file.read_bytes()
        file.write_bytes(whole[:-1024] + bytes(1024))
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        return contents

    monkeypatch.setattr(module, "read_weights", compared_then_changed)
    np.testing.assert_array_equal(text_vectors("minilm", ["bad knee"]), wanted)
    module._sentences.cache_clear()
    with pytest.raises(DataError, match="is another file than that with SHA-256"):
        text_vectors("minilm", ["bad knee"])
