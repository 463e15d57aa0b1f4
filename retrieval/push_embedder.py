"""Uploads an embedder folder to a repository on the Hugging Face hub, after a check of all that is in it.

    python retrieval/push_embedder.py --embedder RUN/embedder --to USER/NAME --dry_run
    python retrieval/push_embedder.py --embedder RUN/embedder --to USER/NAME --private

The token is HF_TOKEN, or that of `hf auth login`. All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["push", *sys.argv[1:]]))
