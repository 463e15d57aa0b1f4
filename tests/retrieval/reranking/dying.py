"""Reranks with a judge that kills its process: ``python dying.py EVALUATION OUT GROUPS``."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from retrieval.reranking.judges import Judge

from vidvec_msg.retrieval import rerank as module

if __name__ == "__main__":
    run, out, groups = sys.argv[1:]
    judge = Judge(dies_after=int(groups))
    with (
        patch.object(module, "load_reranker", lambda _: judge),
        patch.object(module, "check_reranker", lambda _: None),
    ):
        module.rerank(Path(run), "judge", Path(out), depth=4, pictures=False)
