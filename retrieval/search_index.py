"""Searches an index with a text, a clip, an image, or for more like one of its items.

    python retrieval/search_index.py --index INDEX --text "a dog saves the day"
    python retrieval/search_index.py --index INDEX --video CLIP.mp4 --k 5 --json
    python retrieval/search_index.py --index INDEX --id ID

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["search", *sys.argv[1:]]))
