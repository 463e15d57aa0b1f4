"""Embeds one side of a collection into a vectors folder.

    python retrieval/embed_corpus.py --collection COLLECTION --embedder SPEC --out VECTORS
    python retrieval/embed_corpus.py --collection COLLECTION --side queries --embedder SPEC --out VECTORS

An interrupted run goes on where it stopped: give the same line again. All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["embed", *sys.argv[1:]]))
