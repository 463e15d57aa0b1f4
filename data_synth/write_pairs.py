r"""Writes pairs of storylines and messages with any OpenAI-compatible chat endpoint, one per persona.

    python data_synth/write_pairs.py --personas data/personas.jsonl --endpoint http://localhost:8000/v1 \
        --model google/gemma-3-27b-it --count 600 --out pairs
    python data_synth/write_pairs.py --config configs/synth/gemma3_vllm.yaml --personas P --out pairs

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["synth", *sys.argv[1:]]))
