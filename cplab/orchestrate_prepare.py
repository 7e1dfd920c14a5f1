"""What `python -m cplab orchestrate` is asked for, checked cheapest first, and made into a `Speech`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cplab.cb0 import Rules, drawn
from cplab.errors import BadInputError
from cplab.llama.engine import bindings
from cplab.orchestrate import Embeddings, Speech, seeded_prompt
from cplab.orchestrate_compare import must_fit
from cplab.recorded import Prompt, read_codes
from cplab.sampling import Sampling
from cplab.sources import load_model, synthetic
from cplab.talker import Room, Talker, talker_file
from cplab.talker_dump import TalkerDump, load_talker_dump
from cplab.variant import get_variant


@dataclass(frozen=True, slots=True)
class Asked:
    """The options.

    Attributes:
        talker: a GGUF file, or ``synthetic-talker:0.6b``.
        cp: a model, as everywhere.
        variant: which code predictor.
        threads: of both.
        frames: how many at most.
        dump: prompt, rules and what to compare with.
        teacher: codes to feed back.
        penalty: of repetitions; None for the dump's, or none.
        sample: whether codes are drawn, with the official parameters.
        seed: of that, for talker and code predictor; None for 0.
    """

    talker: str
    cp: str
    variant: str
    threads: int
    frames: int
    dump: Path | None = None
    teacher: Path | None = None
    penalty: float | None = None
    sample: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """What can be run.

    Attributes:
        speech: the loop.
        frames: how many at most.
        dump: as read.
        notes: what a reader should know, a line each.
    """

    speech: Speech
    frames: int
    dump: TalkerDump | None
    notes: tuple[str, ...]


@contextmanager
def prepared(asked: Asked) -> Iterator[Ready]:
    """Read, check and load everything, and run both once so that nothing is new to the loop; the talker ends with it.

    Raises:
        BadInputError: numbers out of range; a dump, teacher or talker that does not fit the code predictor.
        UnknownModelError, UnreadableModelError, UnknownVariantError, VariantUnavailableError, EngineError: see there.
    """
    if asked.frames < 1:
        raise BadInputError(f"--frames {asked.frames}: at least 1 is wanted")
    if asked.penalty is not None and not asked.penalty > 0:
        raise BadInputError(f"--repetition-penalty {asked.penalty:g}: a positive number is wanted")
    sampling = _sampling(asked)
    variant = get_variant(asked.variant)
    bindings()
    dump = None if asked.dump is None else load_talker_dump(asked.dump)
    model = load_model(asked.cp)
    spec = model.spec
    if dump is not None:
        must_fit(dump, spec, str(asked.dump))
    file = talker_file(asked.talker)
    file.must_fit(spec)
    if dump is not None and dump.logits.shape[1] != file.vocab:
        raise BadInputError(f"{asked.dump}: a dump of a talker with {dump.logits.shape[1]} codes, not {file.vocab}")
    teacher = None if asked.teacher is None else read_codes(asked.teacher, spec, file.vocab)
    prompt = seeded_prompt(spec.talker_hidden) if dump is None else Prompt(dump.prefill, dump.trailing, dump.tts_pad)
    frames = asked.frames if teacher is None else min(asked.frames, len(teacher))
    model.check_finite()
    predictor = variant.build(model, asked.threads)
    with Console(stderr=True).status("loading the talker; llama.cpp's settings for it are tried once ..."):
        talker = Talker(file, asked.threads, Room(len(prompt.prefill), frames))
    notes = [talker.note]
    if dump is not None and dump.code_predictor_digest != model.digest():
        notes.append(f"{asked.dump}: made with another code predictor's weights than {asked.cp}'s")
    rules = Rules.of_vocabulary(file.vocab) if dump is None else Rules.recorded(dump.rules, file.vocab)
    if asked.penalty is not None:
        rules = Rules(rules.end, rules.suppressed, rules.least, asked.penalty)
    hidden = synthetic.hidden_states(model.name, 2, spec.talker_hidden)
    for row in hidden:
        predictor.predict(row[None], talker.codec_embedding[:1], noise=sampling)
    heard = talker.prefill(prompt.prefill)
    if sampling is not None:
        drawn(rules.ruled(heard.logits, []), sampling, 0)
    talker.step(prompt.prefill[0])
    embeddings = Embeddings(talker.codec_embedding, model)
    speech = Speech(talker, predictor, embeddings, prompt, rules, sampling, sampling, teacher)
    try:
        yield Ready(speech, frames, dump, tuple(notes))
    finally:
        talker.close()


def _sampling(asked: Asked) -> Sampling | None:
    if asked.seed is not None and not asked.sample:
        raise BadInputError("--seed is of --sample, which is not asked for")
    seed = asked.seed or 0
    if not 0 <= seed < 2**64:
        raise BadInputError(f"--seed {seed}: 0 to 2**64 - 1 is wanted")
    return Sampling(seed) if asked.sample else None
