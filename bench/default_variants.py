"""What a sweep measures where nobody named variants: those that this model could be served by, and why not the others.

Each variant costs a gate and its share of every round. One for which the model itself says how it ends is left out,
told with the reason, and measured as soon as it is named:

* as stored, where every matrix of the model is in one format: that format has its own variant;
* weights wider than the model stores them: the same bits come of fewer bytes;
* drafts by later heads of a seeded model: its heads have learnt nothing of each other;
* drafts by a second copy of the model: how often its own rounding lets them hold is known from its fidelity;
* a format of wider blocks than the model's rows are made of: nothing could be measured;
* a format between q8_0 and q4_0, where the model is not stored in it: so are its time and its fidelity.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cplab.errors import RowsNotInBlocksError
from cplab.formats import FORMATS, STORED
from cplab.model import Tensor, is_streamed
from cplab.sources import load_model, synthetic
from cplab.variant import HEADS, Variant

#: Formats whose place the two beside them tell.
_BETWEEN = ("q6_k", "q5_0")
_NAME_IT = "name it with --variants to measure it"


def default_variants(known: list[Variant], model: str, files: Sequence[Path] = ()) -> tuple[list[Variant], list[str]]:
    """Which of the known variants a sweep of a model takes by itself, and a line for each of the others.

    Args:
        known: all of them.
        model: a path or a name.
        files: whose variants are wanted, whatever they are: they were given.

    Raises:
        cplab.errors.CplabError: there is no such model, or it cannot be read.
    """
    opened = load_model(model)
    matrices = [tensor for name, tensor in opened.tensors.items() if is_streamed(name)]
    stored = {tensor.format.name for tensor in matrices}
    # Only a file may hold matrices in several formats.
    uniform = not Path(model).expanduser().is_file()
    knows_nothing = opened.synthetic and not synthetic.predicts_ahead(opened.name)
    given = {path.resolve() for path in files}
    kept, left_out = [], []
    for one in known:
        if Path(one.source).resolve() in given:
            reason = ""
        elif one.format == STORED and uniform:
            reason = "the model is in one format, which has its own variant"
        elif one.format == "f32" and not one.extra and "f32" not in stored:
            reason = "no weight of the model is stored in float32: the same bits come of fewer bytes"
        elif one.drafter == HEADS and knows_nothing:
            reason = "heads of seeded weights have learnt nothing of later codes"
        elif one.drafter not in ("", HEADS):
            reason = f"drafts of a second copy hold as often as its rounding lets them, which kv_{one.drafter} tells"
        elif odd := _not_in_blocks(one.format, matrices):
            left_out.append(f"{one.name}: {odd}")
            continue
        elif one.format in _BETWEEN and one.format not in stored:
            reason = "its bytes and its fidelity lie between those of q8_0 and q4_0, which are measured"
        else:
            reason = ""
        if reason:
            left_out.append(f"{one.name}: {reason} ({_NAME_IT})")
        else:
            kept.append(one)
    return kept, left_out


def _not_in_blocks(format_name: str, matrices: list[Tensor]) -> str:
    """Why matrices cannot be held in a format, whatever their weights; "" where they can, or nobody knows."""
    if format_name not in FORMATS:
        return ""
    try:
        for tensor in matrices:
            FORMATS[format_name].stored_shape(tensor.shape)
    except RowsNotInBlocksError as error:
        return str(error)
    return ""
