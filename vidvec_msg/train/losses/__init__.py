"""Contrastive losses: pure functions on arrays, one file per family.

A loss takes the encoded pairs of this rank and those of all ranks, and returns one loss per own row; how rows
become the step's loss across ranks stands in :mod:`vidvec_msg.train.gather`.
"""

from vidvec_msg.train.losses.info_nce import Contrast, InfoNCE, info_nce
from vidvec_msg.train.losses.pairs import EncodedPairs, PairKeys, PairLoss

__all__ = ["Contrast", "EncodedPairs", "InfoNCE", "PairKeys", "PairLoss", "info_nce"]
