"""Gathers all evaluations below a folder into one table a benchmark and direction.

    python retrieval/leaderboard.py --folder EVALUATIONS
    python retrieval/leaderboard.py --folder EVALUATIONS --sort ndcg@10 --out BOARD

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["leaderboard", *sys.argv[1:]]))
