"""Merges an embedder's adapter into its language model: an embedder folder with whole weights.

    python train/merge_adapter.py --embedder RUN/embedder --out MERGED
    python train/merge_adapter.py --embedder RUN/embedder --out MERGED --dtype float32

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["merge", *sys.argv[1:]]))
