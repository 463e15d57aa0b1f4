"""How several processes train one model: DDP, DeepSpeed's ZeRO, FSDP2.

DDP is Lightning's. The two others are Lightning's as well, completed: they run on CPUs too (to try a
configuration out, and for tests; they take the same way there as on GPUs), their checkpoints hold what trains
alone, and a checkpoint of another run is refused.
"""

from vidvec_msg.train.strategies.fsdp2 import FSDP2
from vidvec_msg.train.strategies.zero import DeepSpeed

__all__ = ["FSDP2", "DeepSpeed"]
