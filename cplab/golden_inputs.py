"""Where a golden's inputs come from when they are not made: recorded hidden states, or a talker that speaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import require_writable
from cplab.errors import BadInputError, GoldenError
from cplab.golden import Golden
from cplab.model import Model
from cplab.recorded import Prompt, read_cb0, read_hidden, read_prompt
from cplab.sources.checkpoint import Checkpoint, open_checkpoint
from cplab.talker_dump import TalkerDump

Float32 = NDArray[np.float32]

#: Frames of a golden where nobody says how many.
USUAL_FRAMES = 33

#: ``(label, total) -> a context`` whose value is called after each step.
Ticking = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks for.

    Attributes:
        hidden: .npy of recorded hidden states.
        cb0: .npy of the codes that they came with.
        text: what the talker is to say.
        from_talker: .npz of a prefill that the talker is to go on from.
        language: of ``text``; None for auto.
        speaker: of ``text``; None for none.
        non_streaming: ``text`` stands whole in the prefill.
        dump: where the talker dump goes; None beside the golden.
        frames: how many; None for as many as are usual.
    """

    hidden: Path | None = None
    cb0: Path | None = None
    text: str | None = None
    from_talker: Path | None = None
    language: str | None = None
    speaker: str | None = None
    non_streaming: bool = False
    dump: Path | None = None
    frames: int | None = None

    @property
    def speaks(self) -> bool:
        """Whether the official talker is to run."""
        return self.text is not None or self.from_talker is not None

    def check(self) -> None:
        """Refuse options that do not go together.

        Raises:
            BadInputError: naming them.
        """
        ways = {"--hidden": self.hidden, "--text": self.text, "--from-talker": self.from_talker}
        taken = [name for name, value in ways.items() if value is not None]
        if len(taken) > 1:
            raise BadInputError(f"{' and '.join(taken)}: one of them is wanted")
        alone = {
            "--cb0": (self.cb0 is not None, "--hidden", self.hidden is not None),
            "--language": (self.language is not None, "--text", self.text is not None),
            "--speaker": (self.speaker is not None, "--text", self.text is not None),
            "--non-streaming": (self.non_streaming, "--text", self.text is not None),
            "--dump": (self.dump is not None, "--text or --from-talker", self.speaks),
        }
        for name, (given, needs, there) in alone.items():
            if given and not there:
                raise BadInputError(f"{name} goes with {needs}")
        if self.frames is not None and self.frames < 2:
            raise BadInputError(f"--frames {self.frames}: at least 2 are wanted, or stale state cannot be told")


@dataclass(frozen=True, slots=True)
class Given:
    """Inputs of a golden.

    Attributes:
        frames: how many are wanted of it.
        hidden: ``[F, talker_hidden]`` f32, or None for generated ones.
        cb0_embed: the same of CB0's embeddings, or None for generated ones.
        about: for the golden's provenance.
        notes: lines for the user.
        dump: what the talker said, if it spoke.
    """

    frames: int
    hidden: Float32 | None = None
    cb0_embed: Float32 | None = None
    about: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dump: TalkerDump | None = None

    def check(self, golden: Golden) -> None:
        """Raise GoldenError unless the golden has the talker's own codes."""
        if self.dump is None:
            return
        kept = np.array(golden.provenance["inputs_kept"])
        wrong = np.flatnonzero((golden.codes != self.dump.codes[kept, 1:]).any(axis=1))
        if len(wrong):
            raise GoldenError(f"frame {kept[wrong[0]]}: the golden has other codes than the talker's loop gave")


def given_inputs(asked: Asked, model: str, loaded: Model, output: Path, ticking: Ticking) -> Given:
    """The inputs that are asked for.

    Args:
        asked: checked already.
        model: the model as the user named it.
        loaded: the same, loaded.
        output: the golden's file.
        ticking: makes progress bars.

    Raises:
        BadInputError: a file cannot be read or does not fit the model, or holds fewer frames than are asked for.
        OutputRefusedError: the talker dump cannot be written.
        OfficialUnavailable, UnreadableModelError: a talker is asked for, and the packages or the folder lack something.
    """
    if asked.speaks:
        return _spoken(
            asked, _checkpoint(model, "--text" if asked.text is not None else "--from-talker"), output, ticking
        )
    if asked.hidden is None:
        return Given(asked.frames or USUAL_FRAMES)
    hidden, done = read_hidden(asked.hidden, loaded.spec.talker_hidden)
    if len(hidden) < (asked.frames or 2):
        raise BadInputError(
            f"{asked.hidden} holds {len(hidden)} hidden states; --frames {asked.frames or 2} needs more"
        )
    notes = (f"{asked.hidden}: {done}",) if done else ()
    about: dict[str, object] = {"hidden": asked.hidden.name}
    cb0 = None
    if asked.cb0 is not None:
        cb0 = read_cb0(asked.cb0, _checkpoint(model, "--cb0"))
        if len(cb0) != len(hidden):
            raise BadInputError(f"{asked.hidden} holds {len(hidden)} frames, {asked.cb0} {len(cb0)}")
        about["cb0"] = asked.cb0.name
    return Given(asked.frames or min(len(hidden), USUAL_FRAMES), hidden, cb0, about, notes)


def _checkpoint(model: str, option: str) -> Checkpoint:
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise BadInputError(f"{option} needs a talker, so --model must be a checkpoint's folder; {model} is none")
    return open_checkpoint(folder)


def _spoken(asked: Asked, checkpoint: Checkpoint, output: Path, ticking: Ticking) -> Given:
    from cplab.official_prompt import Text
    from cplab.talker_dumping import make_dump

    path = asked.dump or output.with_suffix(".talker.npz")
    if path.resolve() == output.resolve():
        raise BadInputError(f"{path}: another name is wanted for the talker dump than for the golden")
    require_writable(path)
    about: dict[str, object] = {}
    source: Text | Prompt
    if asked.from_talker is not None:
        source = read_prompt(asked.from_talker, checkpoint.talker.whole("hidden_size"))
        about["prefill"] = asked.from_talker.name
    else:
        source = Text(asked.text or "", asked.language or "auto", asked.speaker, asked.non_streaming)
    frames = asked.frames or USUAL_FRAMES
    with ticking("talker frames", frames) as tick:
        dump = make_dump(checkpoint, source, frames, about=about, progress=tick)
    dump.save(path)
    end = "ended by the end code" if dump.ended == "end code" else f"stopped by --frames {frames}"
    note = (
        f"{path}: {len(dump)} frames, {end}; prefill of {len(dump.prefill)} positions, "
        f"repetition penalty {dump.rules['repetition_penalty']}"
    )
    about |= {"talker_dump": path.name, "talker_digest": dump.talker_digest}
    return Given(len(dump), dump.hidden, dump.cb0_embed, about, (note,), dump)
