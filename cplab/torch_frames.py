"""What the variants on PyTorch share: its import, its thread count, its weights as rows in memory, and its name.

Weights are held once, in float32, in memory that torch aligns.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError, VariantUnavailableError
from cplab.model import Model, is_streamed
from cplab.official_import import INSTALL
from cplab.spec import Spec
from cplab.variant import WeightStream


@cache
def torch_module() -> Any:
    """PyTorch.

    Raises:
        VariantUnavailableError: it is not installed, or its libraries cannot be loaded.
    """
    try:
        import torch
    except (ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        raise VariantUnavailableError(f"PyTorch cannot be imported ({reason}): {INSTALL}") from error
    return torch


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch's operators run on so many threads, without gradients; the caller's own setting comes back after it.

    Raises:
        BadInputError: fewer than one.
    """
    torch = torch_module()
    if threads < 1:
        raise BadInputError(f"threads is {threads}; at least 1 is wanted")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


class DecodedTensors(Mapping[str, NDArray[np.float32]]):
    """A model's tensors by name, decoded to float32 when they are asked for, so that no two copies of all exist."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self._model.tensors[name].f32()

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.tensors)

    def __len__(self) -> int:
        return len(self._model.tensors)


def torch_streams(weights: Mapping[str, Any], spec: Spec) -> list[WeightStream]:
    """The matrices of a frame in reading order, where torch has them; ``weights`` are tensors by checkpoint name."""
    matrices = {name: weight for name, weight in weights.items() if is_streamed(name)}
    streams = {n: WeightStream(w.data_ptr(), len(w), w.stride(0) * w.element_size()) for n, w in matrices.items()}
    body = [stream for name, stream in streams.items() if not name.startswith("lm_head")]
    return [s for g in range(spec.passes) for s in (*body, streams[f"lm_head.{g}.weight"])]


def torch_note(*packages: str) -> str:
    """``torch 2.13.0+cpu (AVX512), transformers 4.57.3``: which versions compute, with which instructions."""
    torch = torch_module()
    capability = torch.backends.cpu.get_cpu_capability()
    others = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return ", ".join([f"torch {torch.__version__} ({capability})", *others])
