"""Seeded models whose deeper codes can be told from the current hidden state, as often as is wanted.

Nothing is learnt by seeded weights, so that heads of later codes say nothing of the current hidden state. Here each
codebook's codes stand for the same *keys*, one for each code, in an order of the codebook's own. The head row of a code
is its key's vector, and the embedding row of a code too, eight times as long: a token's embedding leads the residual
stream, and every head reads the same key from it. So all codes of a frame would be those of one key, whatever head is
asked for them. But some codes, of each codebook others, have the embedding of another key than their head row's: what
earlier hidden states say of later codes ends there. The share of codes of which that is not true is the share of drafts
that hold, at every depth that is reached, as far as the layers leave the lead to the embedding.

It says nothing of a trained model: how often its drafts hold is for whoever has it to measure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: Share of codes whose embedding is of the same key as their head row.
SHARE = 0.75
#: Powers of two as in `cplab.sources.synthetic`: rows of heads, and of embeddings.
_HEAD, _EMBEDDING = -20, -17

#: ``(stream, count, exponent) -> values`` and ``(stream, count) -> distinct integers``: the recipe's two sources.
Gaussian = Callable[[str, int, int], NDArray[np.float32]]
Order = Callable[[str, int], NDArray[np.int64]]


def is_keyed(name: str) -> bool:
    """Whether a tensor is a head or an embedding table, and so made here."""
    return name.startswith(("lm_head.", "model.codec_embedding."))


def keyed(
    flavour: str, name: str, shape: tuple[int, ...], gaussian: Gaussian, order: Order, share: float = SHARE
) -> NDArray[np.float32]:
    """A head or an embedding table, ``[vocab, hidden]`` f32.

    Args:
        flavour: of the model; names the streams.
        name: of the tensor.
        shape: of the tensor.
        gaussian: values of a stream.
        order: a permutation by a stream.
        share: of codes whose embedding is of the same key as their head row, 0..1.
    """
    group = next(part for part in name.split(".") if part.isdigit())
    key_of_code = order(f"{flavour}/keys of codes/{group}", shape[0])
    exponent = _HEAD
    if "codec_embedding" in name:
        exponent = _EMBEDDING
        key_of_code = _moved(order(f"{flavour}/moved keys/{group}", shape[0]), share)[key_of_code]
    vectors = gaussian(f"{flavour}/keys", shape[0] * shape[1], exponent).reshape(shape)
    return vectors[key_of_code]


def _moved(drawn: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """``[vocab]``: the key that each key's embedding is of. The first of ``drawn`` move, each to the next."""
    keys = np.arange(len(drawn))
    moving = drawn[: round((1 - share) * len(drawn))]
    keys[moving] = np.roll(moving, -1)
    return keys
