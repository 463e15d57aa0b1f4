"""Deletes items of an index by their ids.

    python retrieval/delete_from_index.py --index INDEX --ids talk-7 talk-9
    python retrieval/delete_from_index.py --index INDEX --ids_file gone.txt

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["index-delete", *sys.argv[1:]]))
