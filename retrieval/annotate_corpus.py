"""Recognises what is said and written in a collection's clips and writes it into its rows.

    python retrieval/annotate_corpus.py --collection COLLECTION --ocr
    python retrieval/annotate_corpus.py --collection COLLECTION --asr large-v3-turbo --ocr --out ANNOTATED

An interrupted run goes on where it stopped: give the same line again. All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["annotate", *sys.argv[1:]]))
