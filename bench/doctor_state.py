"""The doctor's checks of the state that the machine is in: clock, heat, NUMA, energy, pages, and the working tree."""

from __future__ import annotations

from bench.verdict import GB, Check, Facts, Verdict, fact

#: More than this in use means that memory has been short.
SWAP_IN_USE_BYTES = GB // 4


def _cpu(facts: Facts) -> Verdict | None:
    model, revision = fact(facts, "cpu.model"), fact(facts, "cpu.revision")
    if not model:
        return None
    found = model + (f", revision {revision}" if revision else "")
    if fact(facts, "cpu.virtual") and not any(letter.isdigit() for letter in model):
        return (
            "risky",
            found,
            "the host hides the model: other machines have this name too, tell runs apart by revision",
        )
    return "good", found, ""


def _clock(facts: Facts) -> Verdict | None:
    limit, most = fact(facts, "frequency.limit_mhz"), fact(facts, "frequency.max_mhz")
    if not limit or not most:
        return None
    found = f"up to {limit:.0f} of {most:.0f} MHz"
    if limit < 0.95 * most:
        return (
            "risky",
            found,
            "the clock is capped (power mode, battery, policy): lift it, or say so beside the figures",
        )
    return "good", found, ""


def _boost(facts: Facts) -> Verdict | None:
    boost = fact(facts, "frequency.boost")
    if boost is None:
        return None
    if boost:
        return "good", "on", "the clock falls with heat and with busy cores: compare within one interleaved run"
    return "good", "off", "figures are those of the base clock"


def _preference(facts: Facts) -> Verdict | None:
    preference = fact(facts, "frequency.preference")
    if not preference:
        return None
    if any(word.endswith("power") and word != "balance_power" for word in preference.split("+")):
        return "bad", preference, "set the energy preference to performance: the clock is kept low under load"
    if preference == "performance":
        return "good", preference, ""
    return "risky", preference, "the clock rises late: set the energy preference to performance, or trust long cells"


def _heat(facts: Facts) -> Verdict | None:
    count, steps, percent = (
        fact(facts, f"temperature.{name}") for name in ("throttle_count", "brake_steps", "speed_limit_percent")
    )
    if count is None and steps is None and percent is None:
        return None
    if steps or (percent is not None and percent < 100):
        found = f"clock capped by {steps} steps" if steps else f"speed limited to {percent} %"
        return "bad", found, "heat holds the CPU back right now: let it cool, give it air"
    if count:
        return (
            "risky",
            f"{count} times since boot",
            "heat has lowered the clock before: look at --soak and at cool cells",
        )
    return "good", "none seen", ""


def _numa(facts: Facts) -> Verdict | None:
    nodes, packages = fact(facts, "memory.numa_nodes"), fact(facts, "cpu.packages")
    if nodes is None:
        return None
    sockets = f", {packages} sockets" if packages and packages > 1 else ""
    found = f"{nodes} node{'s' * (nodes > 1)}{sockets}"
    if nodes == 1:
        return "good", found, ""
    moving = "; the kernel moves pages on its own" if fact(facts, "memory.numa_balancing") else ""
    advice = (
        "weights lie on one node: bind the run to one (numactl --cpunodebind=0 --membind=0), or expect a step there"
    )
    return "risky", found + moving, advice


def _swap(facts: Facts) -> Verdict | None:
    used = fact(facts, "memory.swap_used_bytes")
    if used is None:
        return None
    if used > SWAP_IN_USE_BYTES:
        return (
            "risky",
            f"{used / GB:.1f} GB in use",
            "memory was short: close what is large, and look at first calls twice",
        )
    return "good", "unused" if not used else f"{used / GB:.2f} GB in use", ""


def _energy(facts: Facts) -> Verdict | None:
    names, reason = fact(facts, "energy.domains"), fact(facts, "energy.reason")
    if names:
        return "good", ", ".join(names), "a package's counter has in it whatever else runs there"
    if not reason or "root only" not in reason:
        return None
    return "risky", "there, but forbidden", f"joules a frame will be missing: {reason}"


def _working_tree(facts: Facts) -> Verdict | None:
    commit, dirty = fact(facts, "git.commit"), fact(facts, "git.dirty")
    if commit is None:
        return None
    if commit == "nogit":
        return "risky", "not in a repository", "records will not say which code ran: measure from a clone"
    if dirty:
        return "risky", f"{commit} with changes", "commit first: a record should name the code that it measured"
    return "good", commit, ""


STATE_CHECKS: dict[str, Check] = {
    "CPU": _cpu,
    "clock": _clock,
    "boost": _boost,
    "energy preference": _preference,
    "heat throttling": _heat,
    "NUMA": _numa,
    "swap": _swap,
    "energy": _energy,
    "working tree": _working_tree,
}
