"""Judges the best candidates of an evaluation pair by pair and puts them in a new order.

    python retrieval/rerank_run.py --run E --reranker mllm:MODEL --out R
    python retrieval/rerank_run.py --run E --reranker tinyworld --depth fitted --validation E_DEV --out R
    python retrieval/rerank_run.py --run run.trec --collection C --reranker st-cross:FOLDER --out R

Judgements are kept, so an interrupted job goes on. All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["rerank", *sys.argv[1:]]))
