"""Makes one segment of an index again, without deleted items.

    python retrieval/compact_index.py --index INDEX
    python retrieval/compact_index.py --index INDEX --factory HNSW32,Flat

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["index-compact", *sys.argv[1:]]))
