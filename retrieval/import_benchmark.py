"""Makes a collection of a published benchmark whose annotations and clips you have; fetches nothing.

    python retrieval/import_benchmark.py --name msrvtt --source MSRVTT --clips MSRVTT/videos --out C
    python retrieval/import_benchmark.py --name vidmsg --source vidmsg --max_failures 0.05 --out C

All options: ``--help``.
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["import-benchmark", *sys.argv[1:]]))
