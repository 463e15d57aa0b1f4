"""Trains an adapter on text pairs, or measures one: the same program as train.py in the root.

    python train/train.py fit --config configs/train/tinyworld.yaml
    python train/train.py validate --config runs/mine/config.yaml --ckpt_path last

The run folder is --trainer.default_root_dir; docs/fit.md says what it holds.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or ["fit", "--help"]))
