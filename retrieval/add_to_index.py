"""Adds items to an index, or replaces them, at the cost of the new vectors.

    python retrieval/add_to_index.py --index INDEX --vectors VECTORS
    python retrieval/add_to_index.py --index INDEX --collection COLLECTION --existing replace

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["index-add", *sys.argv[1:]]))
