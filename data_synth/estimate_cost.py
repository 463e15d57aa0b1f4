r"""Shows ten prompts of a synthesis, and what it would cost; asks nothing.

    python data_synth/estimate_cost.py --personas persona.jsonl --model NAME --count 70000 --out pairs \
        --prices my_prices.yaml

All options: those of ``write_pairs.py``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["synth", "--dry_run", *sys.argv[1:]]))
