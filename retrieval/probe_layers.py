"""Finds the layer of a multimodal LLM that retrieves best on a collection, and writes it as an embedder.

    python retrieval/probe_layers.py --collection C --embedder mllm:org/name --out PROBE
    python retrieval/probe_layers.py --collection C --embedder RUN/embedder --validation dev --out PROBE

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["probe-layers", *sys.argv[1:]]))
