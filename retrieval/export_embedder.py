"""Writes an embedder as a model folder that sentence-transformers or transformers opens, adapter merged.

    python retrieval/export_embedder.py --embedder RUN/embedder --out MODEL
    python retrieval/export_embedder.py --embedder RUN/embedder --out MODEL --dtype float32
    python retrieval/export_embedder.py --embedder RUN/embedder --out MODEL --to transformers

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["export", *sys.argv[1:]]))
