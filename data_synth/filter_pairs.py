"""Runs the filters of synthesis on any file of pairs, and keeps what they reject with the reasons.

    python data_synth/filter_pairs.py --pairs data/pairs.jsonl --out filtered
    python data_synth/filter_pairs.py --pairs pairs.csv --out filtered --filters '{"lengths": null}'

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["filter-pairs", *sys.argv[1:]]))
