"""Trains an adapter on text pairs, or measures one.

python train.py fit --config configs/train/tinyworld.yaml
python train.py fit --config configs/train/tinyworld.yaml --trainer.default_root_dir runs/mine
python train.py fit --config runs/mine/config.yaml --ckpt_path last          # continue it
python train.py validate --config runs/mine/config.yaml --ckpt_path last
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or ["fit", "--help"]))
