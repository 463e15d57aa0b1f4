"""What every test can count on: no hub, one thread, the same seeds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session", autouse=True)
def _own_vector_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Evaluations of the tests leave the user's cache of vectors alone."""
    from vidvec_msg.retrieval.evaluation import vector_cache

    folder = tmp_path_factory.mktemp("vectors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_cache, "user_folder", lambda: folder)
        yield


@pytest.fixture(autouse=True)
def _threads_as_found() -> Iterator[None]:
    """A test that leaves torch another number of threads fails, not those that run after it."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    yield
    if torch and torch.get_num_threads() != before:
        left = torch.get_num_threads()
        torch.set_num_threads(before)
        pytest.fail(f"the test leaves torch {left} threads, it found {before}")


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads for torch, as on a machine with two free cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the longest tests begin first, so that no worker is left alone with them at the end."""

    def minutes(item: pytest.Item) -> float:
        slow = item.get_closest_marker("slow")
        return 0.0 if slow is None else float(slow.kwargs.get("minutes", 1))

    longest: dict[str, float] = {}
    for item in items:
        longest[str(item.path)] = max(minutes(item), longest.get(str(item.path), 0.0))
    items.sort(key=lambda item: -longest[str(item.path)])
