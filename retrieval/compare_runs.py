"""Puts evaluations of one collection side by side, with paired tests, in both directions.

    python retrieval/compare_runs.py --runs EVALUATION EVALUATION
    python retrieval/compare_runs.py --runs E1 E2 E3 --names before after control --out COMPARISON
    python retrieval/compare_runs.py --runs E1 E2 E3 --baseline before --json

Evaluations of other data or settings are refused, with what differs. All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["compare", *sys.argv[1:]]))
