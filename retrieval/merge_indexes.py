"""Joins indexes of one embedder into a new one.

    python retrieval/merge_indexes.py --indexes INDEX_1 INDEX_2 --out INDEX

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["index-merge", *sys.argv[1:]]))
