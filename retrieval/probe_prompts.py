"""Finds the wording and frames with which a multimodal LLM retrieves best, and writes them as an embedder.

    python retrieval/probe_prompts.py --collection C --embedder mllm:org/name --prompts vidvec plain --out P
    python retrieval/probe_prompts.py --config grid.yaml

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["probe-prompts", *sys.argv[1:]]))
