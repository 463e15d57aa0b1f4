"""Shows the first batch of a config as the model will read it, without loading the model.

    python train/preview_batch.py --config configs/train/tinyworld.yaml
    python train/preview_batch.py --config configs/train/tinyworld.yaml --show 3 --model.max_tokens 40

The options are those of fit; docs/preview.md shows what is printed.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["preview", *sys.argv[1:]]))
