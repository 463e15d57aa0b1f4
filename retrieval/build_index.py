"""Builds a FAISS index from a vectors folder, or straight from a collection.

    python retrieval/build_index.py --vectors VECTORS --out INDEX
    python retrieval/build_index.py --collection COLLECTION --embedder SPEC --out INDEX
    python retrieval/build_index.py --vectors VECTORS --factory IVF1024,PQ48 --out INDEX

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["index", *sys.argv[1:]]))
