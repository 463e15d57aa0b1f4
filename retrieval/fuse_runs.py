"""Joins the ranked lists of several evaluations of one collection into one evaluation.

    python retrieval/fuse_runs.py --runs FRAMES TRANSCRIPT --out FUSED
    python retrieval/fuse_runs.py --runs FRAMES TRANSCRIPT --method sum --weights 0.7 0.3 --out FUSED
    python retrieval/fuse_runs.py --runs F T --method sum --validation F_DEV T_DEV --out FUSED

Nothing is embedded. All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["fuse", *sys.argv[1:]]))
