"""Sentences of a quality page: how to read it, what it cannot tell, how to make it again."""

from __future__ import annotations

from bench.records.quality import Quality
from reports.wording import percent


def how_to_read(found: Quality) -> list[str]:
    """What each figure is."""
    return [
        "Brackets hold 95 % bootstrap intervals over frames: codes of one frame follow from one another and are no "
        "sample of their own. An interval of no width says that these frames agree, and no more.",
        "Agreement is the share of rows (one codebook of one frame) whose largest logit is the same code's. By margin: "
        "each row counts by float32's largest logit less its second, so that near-ties count little.",
        "KL is the divergence of the softmax from float32's, in nats, 0 for the same distribution. Δp is the change of "
        "the probability of the code that float32 chose, top 5 the share of the five likeliest codes that both have.",
        "A row that is not finite agrees nowhere, and no distance is told of a variant that has one.",
        f"Float32 is {found.facts.law_by or 'the oracle'}.",
    ]


def cannot_tell(found: Quality) -> list[str]:
    """What these figures say nothing of."""
    facts, loop = found.facts, found.float_rollout
    told = [found.warning] if found.warning else []
    told.append(
        f"They are only as good as the frames: {facts.golden_frames} of the golden, of which the file has "
        f"{facts.golden_distinct} distinct. Other speech has other margins."
    )
    told.append(
        "They count codes, not what is heard. Another code may sound the same, and one wrong code in CB1 may be worse "
        "than ten in CB15: listen too."
    )
    told.append(
        "Greedy choice is judged. Sampling draws from the whole distribution, of which the divergence says more than "
        "the agreement."
    )
    if loop is not None:
        parting = "In the rollout, own loops part after the first other code, and what follows is another utterance"
        apart = f"frames that have nothing to do with each other share {percent(loop.unrelated)} of their codes"
        told.append(f"{parting}, not an error{'' if loop.unrelated is None else f': {apart}'}.")
        if "stand-in" in loop.talker:
            told.append(
                "The rollout's talker is a stand-in: it tells whether a loop keeps going, not whether it keeps "
                "talking. --talker puts a real one in its place."
            )
    if facts.recorded:
        told.append(
            "Recorded codes are pinned; the hidden states beside them are seeded unless --hidden gives those that they "
            "came with."
        )
    return told


def reproduction(found: Quality) -> list[tuple[str, str]]:
    """How it was made."""
    facts = found.facts
    rows = [
        ("command", facts.command),
        ("model", f"{found.model.name}, weights {found.model.digest}"),
        ("golden", f"{facts.golden or 'made on the spot'}, reference {facts.golden_reference or 'unknown'}"),
        ("threads", str(facts.threads)),
        ("version", f"{facts.tool_version}, commit {facts.commit}"),
        ("took", f"{facts.elapsed_s:.0f} s"),
    ]
    if facts.recorded:
        rows.append(("recorded codes", f"{facts.recorded}, {facts.recorded_frames} frames"))
    return rows
