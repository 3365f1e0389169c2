"""Texts as vectors of a fixed length, by public functions of one text alone. They hold no number
that was computed from a private record, so they cost no privacy.

    vectors = load_sentences(files, "minilm")(["short of breath since Monday"])    # (1, 384), length 1
    hashed_words(["short of breath since Monday"])                        # (1, 256), no weights

| module | has |
|---|---|
| `sentences` | word pieces in, one vector of length 1 out, by a frozen network |
| `transformer` | the network's forward pass |
| `words` | words hashed into buckets, where there are no weights |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.texts.sentences import Sentences as Sentences, load_sentences as load_sentences
    from sumus.texts.words import BUCKETS as BUCKETS, hashed_words as hashed_words

__getattr__, __dir__, __all__ = door(
    __name__,
    sentences="Sentences load_sentences",
    words="BUCKETS hashed_words",
)
