"""Makes a collection of a folder of clips, a table, a BEIR folder or a data set on disk.

python retrieval/collect_corpus.py --source clips/ --out C
python retrieval/collect_corpus.py --source captions.csv --columns '{video: path}' --queries caption --out C
python retrieval/collect_corpus.py --source talks/ --window 30 --overlap 5 --groups topic --out C
"""

import sys

from vidvec_msg.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["collect", *sys.argv[1:]]))
