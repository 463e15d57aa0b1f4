"""Asks multiple-choice questions about the clips of a collection; embedders and language models answer.

    python retrieval/answer_multiple_choice.py --collection C --embedder RUN/embedder st:NAME --out M
    python retrieval/answer_multiple_choice.py --collection C --answerer mllm:org/name --rotations 4 --out M

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["mcq", *sys.argv[1:]]))
