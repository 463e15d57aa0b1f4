"""Examines an embedder, and a collection if one is given: a table, and exit code 1 if something failed.

    python retrieval/check_embedder.py --embedder SPEC
    python retrieval/check_embedder.py --embedder SPEC --collection COLLECTION
    python retrieval/check_embedder.py --embedder SPEC --collection COLLECTION --json

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["doctor", *sys.argv[1:]]))
