import numpy as np
import pytest
import torch
from tiny_models import FAMILIES

from vidvec_msg.embedders.pooling import check_read_out, last_token, mean_token, reading_layer

HIDDEN = torch.arange(24, dtype=torch.float32).reshape(
    2, 4, 3
)  # state of row r, position p begins with 12 r + 3 p


@pytest.mark.parametrize(
    ("mask", "last", "mean"),
    [
        ([[1, 1, 1, 1], [1, 1, 1, 1]], [9, 21], [4.5, 16.5]),  # nothing padded
        ([[1, 1, 0, 0], [1, 1, 1, 1]], [3, 21], [1.5, 16.5]),  # right
        ([[0, 0, 1, 1], [1, 1, 1, 1]], [9, 21], [7.5, 16.5]),  # left
        ([[0, 0, 0, 1], [0, 1, 1, 1]], [9, 21], [9.0, 18.0]),  # left, all rows
        ([[1, 0, 0, 0], [0, 0, 0, 1]], [0, 21], [0.0, 21.0]),  # both sides in one batch
    ],
)
def test_by_each_rows_own_mask(mask, last, mean):
    mask = torch.tensor(mask)
    assert last_token(HIDDEN, mask)[:, 0].tolist() == last
    assert mean_token(HIDDEN, mask)[:, 0].tolist() == mean
    assert last_token(HIDDEN, mask).shape == (2, 3)


def test_random_masks_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(50, 9, 4, generator=generator)
    mask = (torch.rand(50, 9, generator=generator) > 0.5).long()
    mask[:, 4] = 1
    for row in range(50):
        content = mask[row].nonzero().flatten()
        torch.testing.assert_close(last_token(hidden, mask)[row], hidden[row, content[-1]])
        torch.testing.assert_close(mean_token(hidden, mask)[row], hidden[row, content].mean(0))


@pytest.mark.parametrize("pool", [last_token, mean_token])
def test_a_row_without_content_is_an_error(pool):
    with pytest.raises(ValueError, match="row 1 of the batch has no content to pool"):
        pool(HIDDEN, torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]))


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_on_a_real_model(llm, mixed, texts, family):
    """0 is the embedding output, n the raw output of block n, -1 the normed final state."""
    embedder = llm(family)
    backbone, blocks = embedder.backbone, embedder.backbone.blocks

    def hooks():
        return sum(
            len(block._forward_hooks) + len(block._forward_pre_hooks) for block in backbone.tower.layers
        )

    items = texts if family == "text" else [item for item in mixed if item.id in ("three frames", "file")]
    turns = embedder._reader.turns(items)
    together = [turn for turn in turns if embedder.chat.go_together(turns[0], turn)]
    inputs = dict(embedder.chat.batch(together))
    with torch.inference_mode():
        reference = backbone.base(**inputs, output_hidden_states=True, use_cache=False)
        before = hooks()
        for layer in range(blocks + 1):
            with reading_layer(backbone.tower, layer) as state:
                backbone.base(**inputs, use_cache=False)
            if layer < blocks:
                torch.testing.assert_close(state(), reference.hidden_states[layer], rtol=0, atol=0)
        raw = state()
        # transformers norms its last hidden state; the raw output of the last block is another thing
        torch.testing.assert_close(backbone.tower.norm(raw), reference.last_hidden_state, rtol=0, atol=1e-6)
        torch.testing.assert_close(reference.hidden_states[-1], reference.last_hidden_state, rtol=0, atol=0)
        assert not torch.allclose(raw, reference.last_hidden_state, atol=1e-2)
        assert hooks() == before


def test_each_layer_gives_another_vector(llm, texts):
    seen = [llm(layer=layer).encode(texts, role="query") for layer in (-1, 0, 1, 2, 3)]
    for one in range(5):
        for other in range(one):
            assert np.abs(seen[one] - seen[other]).max() > 0.01


def test_layer_0_at_the_last_position_is_the_last_tokens_embedding(llm, texts):
    """The generation prompt ends alike for all texts: a reader who knows that knows the vector."""
    embedder = llm("text", layer=0)
    vectors = embedder.encode(texts, role="query")
    ids = embedder.chat.text_ids(embedder.card.prompt, texts[0].full_text, max_tokens=1024)
    expected = embedder.backbone.tower.embed_tokens.weight[ids[-1]].numpy()
    np.testing.assert_allclose(vectors, np.tile(expected / np.linalg.norm(expected), (5, 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "pooling", "reason"),
    [
        (4, "last", r"layer must be -1 .*, 0 .* or 1 to 3 .*, got 4"),
        (-2, "last", "got -2"),
        (-1, "cls", "pooling must be one of last, mean, visual, got 'cls'"),
    ],
)
def test_values_are_checked(layer, pooling, reason):
    with pytest.raises(ValueError, match=reason):
        check_read_out(layer, pooling, blocks=3)
