"""Codes of recorded speech, pinned: what the model says where the codes before are a person's and not its own."""

from __future__ import annotations

from pathlib import Path

from bench.quality.standin_talker import StandInTalker
from bench.quality.truth import Float32, Int32
from cplab.errors import BadInputError
from cplab.model import Model
from cplab.recorded import codec_embedding, read_codes, read_hidden
from cplab.sources import synthetic
from cplab.sources.checkpoint import open_checkpoint


def recorded_frames(
    model: Model, path: str, codes: Path, hidden: Path | None, frames: int | None
) -> tuple[Float32, Float32, Int32]:
    """Hidden states, CB0's embeddings and pinned codes: ``[F, talker_hidden]``, the same, ``[F, groups-1]``.

    CB0's embeddings are those of the checkpoint's talker where the model is a checkpoint's folder, else of the
    stand-in's. Hidden states are seeded where none are given: codes are then speech, and what they follow from is not.

    Args:
        model: the code predictor.
        path: where it is from, as the user named it.
        codes: a .npy, ``[F, groups]`` integers, CB0 first.
        hidden: a .npy, ``[F, talker_hidden]``, or None.
        frames: how many at most.

    Raises:
        BadInputError: a file that cannot be read or does not fit.
        UnreadableModelError: the checkpoint has no talker.
    """
    spec, folder = model.spec, Path(path).expanduser()
    table = codec_embedding(open_checkpoint(folder)) if folder.is_dir() else StandInTalker(spec).codec_embedding
    read = read_codes(codes, spec, len(table))[:frames]
    if hidden is None:
        states = synthetic.hidden_states(f"{model.name} recorded", len(read), spec.talker_hidden)
    else:
        states = read_hidden(hidden, spec.talker_hidden)[0][: len(read)]
        if len(states) < len(read):
            raise BadInputError(f"{hidden} holds {len(states)} hidden states, {codes} {len(read)} frames")
    return states, table[read[:, 0]], read[:, 1:].copy()
