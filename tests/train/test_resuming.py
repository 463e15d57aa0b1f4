"""What a checkpoint must be of is known from the options alone, and is what a checkpoint says."""

from __future__ import annotations

from pathlib import Path

import pytest

from vidvec_msg.errors import Problems
from vidvec_msg.train.options import check_options, options_parser
from vidvec_msg.train.provenance import describe
from vidvec_msg.train.resuming import expected


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--model.lora.r=4", "--model.lora.dora=true", "--model.layer=2"],
        ["--model.lora.targets=.*self_attn.(q|v)_proj", "--model.lora.rank_stabilised=true"],
        ["--model.tuning=full", "--model.layer=1"],
        ["--model.tuning=full-with-embeddings", "--model.loss.learn_temperature=true"],
        ["--model.gradient_checkpointing=true", "--model.grad_cache=true"],
        ["--model.loss=null"],
    ],
)
def test_it_is_what_the_module_says_of_itself(tiny: Path, pairs_file: Path, words: list[str]) -> None:
    parser = options_parser()
    options = parser.parse_args(
        [f"--model.model={tiny}", f"--data.pairs={pairs_file}", "--data.batch_size=4", *words]
    )
    problems = Problems("a fit")
    found = expected(options, check_options(options, problems))
    assert not problems.found
    said = describe(parser.instantiate_classes(options).model)
    assert found == said
    assert found["weights"]
