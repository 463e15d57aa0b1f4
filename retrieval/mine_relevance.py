"""Finds pairs that may mean the same, for people to judge, and makes qrels of what they judged.

    python retrieval/mine_relevance.py --collection C --embedder st:NAME --out review
    python retrieval/mine_relevance.py --collection C --reviewed reviewed-ann.jsonl bo.csv --out judged

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["mine-relevance", *sys.argv[1:]]))
