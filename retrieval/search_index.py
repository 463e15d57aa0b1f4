"""Searches an index with a text, a clip, an image or sound, for more like its items, or with many queries.

    python retrieval/search_index.py --index INDEX --text "a dog saves the day" --filter topic=news
    python retrieval/search_index.py --index INDEX --video CLIP.mp4 --k 5 --dedupe video --json
    python retrieval/search_index.py --index INDEX --id ID
    python retrieval/search_index.py --index INDEX --queries C/queries.jsonl --run OUT.trec --k 100

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["search", *sys.argv[1:]]))
