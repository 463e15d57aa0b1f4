"""One rank of ``test_gather``: loss and gradients of its share of the pairs, written to a file.

python rank_of_gather.py RANK RANKS FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import normalize

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.gather import gather_pairs, mean_over_ranks
from vidvec_msg.train.losses import DualSoftmax, EncodedPairs, GuidedInfoNCE, InfoNCE, Matryoshka, PairKeys

DIM = 5
LOSSES = {
    "positives": InfoNCE(0.1),
    "masked": InfoNCE(0.1, shared="masked"),
    "margin": InfoNCE(0.1, shared="masked", false_negative_margin=0.1),
    "dual softmax": DualSoftmax(0.1, prior_temperature=1.0),
    "guided": GuidedInfoNCE("any", margin=0.1, temperature=0.1),
    "matryoshka": Matryoshka([2, 3], InfoNCE(0.1)),
}
# (name, negatives per pair, pairs of each of two ranks)
CASES = (
    ("no negatives", (0, 0, 0, 0, 0, 0), (3, 3)),
    ("one negative", (1, 1, 1, 1, 1, 1), (3, 3)),
    ("two negatives", (2, 2, 2, 2, 2, 2), (3, 3)),
    ("an uneven last batch", (1, 1, 1, 1, 1), (3, 2)),
    ("negatives on one rank only", (2, 0, 1, 0, 0, 0), (3, 3)),
)


def pairs_of(negatives: tuple[int, ...]) -> list[Pair]:
    """Some share a message (0 and 3), some a group (1 and 4): masks must hold across ranks."""
    messages = ["same", "p1", "p2", "same", "p4", "p5"]
    groups = [None, "g", None, None, "g", None]
    return [
        Pair(f"a{i}", messages[i], tuple(f"n{i}.{k}" for k in range(count)), group=groups[i])
        for i, count in enumerate(negatives)
    ]


def case(negatives: tuple[int, ...], sizes: tuple[int, ...], rank: int, loss: str) -> dict[str, torch.Tensor]:
    """Term, gradient of the shared weight and masked cells of a rank; the whole batch is one size."""
    torch.manual_seed(7)
    weight = torch.randn(DIM, DIM, requires_grad=True)
    pairs = pairs_of(negatives)
    width = max(negatives)
    texts = torch.randn(len(pairs), 2 + 2, DIM)  # anchor, positive, up to two negatives
    views = normalize(torch.randn(len(pairs), 2 + 2, DIM), dim=-1)  # a guide's of the same texts
    rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    vectors = normalize(texts[rows] @ weight, dim=-1)
    keys = PairKeys.of(pairs[rows])
    own_width = keys.negatives.shape[1]
    assert own_width <= width
    own, guide = (
        EncodedPairs(seen[:, 0], seen[:, 1], seen[:, 2 : 2 + own_width], keys)
        for seen in (vectors, views[rows])
    )
    own.guide = guide if LOSSES[loss].guide else None
    everyone, offset = gather_pairs(own)
    result = LOSSES[loss](own, everyone, offset)
    term = mean_over_ranks(result.rows, len(everyone))
    term.backward()
    assert weight.grad is not None
    return {
        "loss": term.detach(),
        "gradient": weight.grad,
        "masked": result.masked.float(),
        "rows": result.rows.detach(),
    }


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=ranks)
    found = {}
    for loss in LOSSES:
        for name, negatives, sizes in CASES:
            made = case(negatives, sizes, rank, loss)
            for part in ("loss", "gradient"):  # as DDP averages
                dist.all_reduce(made[part])
                made[part] /= ranks
            dist.all_reduce(made["masked"])
            found[f"{loss}/{name}"] = made
    torch.save(found, folder / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
