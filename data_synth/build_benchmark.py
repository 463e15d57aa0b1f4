r"""Finds clips that imply messages, for people to rate; their ratings make a collection of it.

    python data_synth/build_benchmark.py --messages messages.csv --provider youtube --model NAME \
        --endpoint http://localhost:8000/v1 --out bench
    python data_synth/build_benchmark.py --config bench/build.json --ratings ann.csv ben.csv cleo.csv

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["build-benchmark", *sys.argv[1:]]))
