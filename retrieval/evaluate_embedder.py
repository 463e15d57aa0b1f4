"""Measures an embedder on a collection in both directions and writes a report.

    python retrieval/evaluate_embedder.py --collection COLLECTION --embedder SPEC --out EVALUATION
    python retrieval/evaluate_embedder.py --config configs/evaluate/vidmsg.yaml --embedder SPEC --out E
    python retrieval/evaluate_embedder.py --collection COLLECTION --embedder SPEC --out EVALUATION --json

An interrupted evaluation goes on where it stopped: give the same line again. All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["evaluate", *sys.argv[1:]]))
