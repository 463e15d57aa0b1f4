"""Contrastive losses, one file per family, over one notion of which cells are positives.

A loss takes the encoded pairs of this rank and those of all ranks, and returns one loss per own row; how rows
become the step's loss across ranks stands in :mod:`vidvec_msg.train.gather`.
"""

from vidvec_msg.train.losses.cells import Contrast
from vidvec_msg.train.losses.dual_softmax import DualSoftmax
from vidvec_msg.train.losses.guided import GuidedInfoNCE
from vidvec_msg.train.losses.info_nce import InfoNCE
from vidvec_msg.train.losses.matryoshka import Matryoshka
from vidvec_msg.train.losses.pairs import EncodedPairs, PairKeys, PairLoss

__all__ = [
    "Contrast",
    "DualSoftmax",
    "EncodedPairs",
    "GuidedInfoNCE",
    "InfoNCE",
    "Matryoshka",
    "PairKeys",
    "PairLoss",
]
