"""Is this embedder what it says it is, and is this collection fit to measure with?

``checks`` has the table of what is looked at in an embedder, ``audit`` that of a collection; ``verb`` tells
the story.
"""

from __future__ import annotations

from vidvec_msg.retrieval.doctor.audit import audit
from vidvec_msg.retrieval.doctor.checks import examine
from vidvec_msg.retrieval.doctor.finding import Finding
from vidvec_msg.retrieval.doctor.verb import doctor

__all__ = ["Finding", "audit", "doctor", "examine"]
