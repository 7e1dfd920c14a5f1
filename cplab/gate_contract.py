"""What a caller may rely on besides right codes: bad inputs are refused, numbers are true, strides do not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import CplabError
from cplab.golden import Golden
from cplab.variant import CodePredictor

Codes = NDArray[np.int32]


def broken_contract(
    predictor: CodePredictor, golden: Golden, calls: list[tuple[Codes | None, NDArray[np.int64]]]
) -> str:
    """The first thing that does not hold, in a sentence, or "".

    Args:
        predictor: what is judged.
        golden: frame 0 of it is the input.
        calls: codes (None where the call failed) and pass times of each free-running frame, frame 0 first.
    """
    return (
        _takes_bad_inputs(predictor, golden)
        or _untrue_numbers(predictor, golden.codes.shape[1], [pass_ns for _, pass_ns in calls])
        or _minds_strides(predictor, golden, calls[0][0])
    )


def _takes_bad_inputs(predictor: CodePredictor, golden: Golden) -> str:
    hidden, cb0 = golden.hidden[:1], golden.cb0_embed[:1]
    refused: dict[str, Any] = {
        "NaN in hidden": np.full_like(hidden, np.nan),
        "float64 hidden": hidden.astype(np.float64),
        "hidden of a wrong width": hidden[:, :-1].copy(),
    }
    for what, bad in refused.items():
        try:
            predictor.predict(bad, cb0.copy())
        except CplabError:
            continue
        except Exception as error:  # noqa: BLE001 -- a stranger's code may raise anything; that is the finding
            return f"{what}: {type(error).__name__} instead of BadInputError ({error})"
        return f"{what} is taken without a word; BadInputError is wanted"
    return ""


def _untrue_numbers(predictor: CodePredictor, passes: int, pass_times: list[NDArray[np.int64]]) -> str:
    for pass_ns in pass_times:
        if len(pass_ns) not in (0, passes) or (pass_ns < 0).any():
            return f"trace.pass_ns is {pass_ns.tolist()}; nothing or {passes} times are wanted"
    streamed = sum(s.rows * s.row_bytes for s in predictor.streams())
    if streamed and streamed != predictor.bytes_per_frame:
        return f"bytes_per_frame is {predictor.bytes_per_frame}, streams() add up to {streamed}"
    if not 1 <= predictor.passes_per_frame <= passes:
        return f"passes_per_frame is {predictor.passes_per_frame}; 1 to {passes} make sense"
    return ""


def _minds_strides(predictor: CodePredictor, golden: Golden, alone: Codes | None) -> str:
    hidden, cb0 = (np.stack([x[0], x[0]], axis=1)[:, 0][None] for x in (golden.hidden, golden.cb0_embed))
    if alone is None:
        return ""
    try:
        codes = np.asarray(predictor.predict(hidden, cb0)).view(np.ndarray)
    except CplabError:
        codes = None
    if codes is None or not np.array_equal(codes, alone):
        return "other codes where hidden and cb0_embed are not contiguous"
    return ""
