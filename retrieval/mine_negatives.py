"""Finds hard negatives for training pairs with any embedder, and writes the pairs with them.

    python retrieval/mine_negatives.py --pairs pairs.jsonl --embedder st:NAME --out mined.jsonl
    python retrieval/mine_negatives.py --pairs pairs.jsonl --embedder RUN/embedder --out mined.csv --seed 1

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["mine-negatives", *sys.argv[1:]]))
