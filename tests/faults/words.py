"""The sentences of docs/accuracy.md that are not figures."""

from __future__ import annotations

ENVS = {"crm": "the demo's CRM suite (SQLite, flat JSON)", "booking": "a booking service (PostgreSQL, nested JSON)"}
SEEDS = {
    "tune": "the tuning seeds: the detectors were worked on with these, so that the figures flatter them",
    "hold-out": "seeds that no detector was worked on with",
}
ROWS = {
    "a": "(a) Non-determinism", "b": "(b) Stale reads", "c": "(c) State bleed", "d": "(d) Races", "f": "(f) Resets",
    "two": "Two faults at once", "mask": "Faults that look like noise",
}  # fmt: skip
LOOK_ALIKES = {
    "fresh-ids": "a request id and a time in each answer", "seeded": "numbers from a seeded generator",
    "rounding": "sums of floats in another order", "legal-order": "lanes that come in another order",
    "overlap": "reads that overlap a slow write", "accepted": "202, and done a little later",
    "declared": "a list with max-age and Age", "reverted": "a hidden writer puts a status back (ABA)",
    "catalogue": "shared rows with long ids", "same-uuid": "the same minted uuid in each episode",
    "nil-uuid": "the nil uuid everywhere", "renamed": "seeded rows with fresh ids",
    "reordered": "rows in another order", "clocks": "rows that say when they were put in",
}  # fmt: skip

LEAD = """
# Accuracy

Made by `make accuracy`, from {seeds}. Each cell of the matrix is a run of its own: scripted agents work on an
environment through the real recorder, `check` judges the recording, and what it says is held against the injector's
ledger, which the detectors never see. {cells} cells, {episodes} episodes, {exchanges} exchanges, {faults} faults that
occurred and could be seen. Environments: {environments}.

A hit names the right exchange and the right cell (table, row and column, or the member of an answer), not only the
episode. Shares come with Wilson's 95 % interval. The figures vary a little from run to run, because caches run out and
lanes meet in real time; the seeds and the rules do not.

**What counts as occurred.** A stale read: the answer held a value that its cell held at no instant between the first
byte sent and the last byte received (the environment's own clock, which is the recorder's; the same machine). Reads of
an episode that missed the same write are one fault. A bleed or bad reset: the start snapshot or an answer showed what
the right start of that task and seed has not; one fault per episode. Another answer: an episode that was told something
else than most of those that had been answered alike until then; one fault per episode.
"""
TARGETS = "Found counts findings of any grade; the tables below say how many were proven or confirmed."
CAUSES_LEAD = """
Every fault of which one was missed, and every look-alike that was taken for a fault. At two lanes and more much of what
is missed was under way at the same time as a write: both values may be right then, and nothing is said.
"""
CAUSES: dict[tuple[str, str], str] = {
    ("a", "rng"): "four lanes: an answer that follows another difference of its kind is not claimed, so that on whom it"
    " falls is not known; and where each answer is drawn anew, two that happen to be equal pass for the usual one",
    ("a", "tie"): "not known; on other seeds all 48 of the booking service were found",
    ("b", ""): "on the tuning seeds 66 of 2,271 were missed at two lanes and more: 25 lists and 404s that lack a row,"
    " 20 values that some write may have given by the intervals, 19 told under another write, 2 that nobody wrote",
    ("b", "reverted"): "not known",
    ("d", "write-back"): "overwritten before a snapshot showed it. Where only a time of change says which write came"
    " first, another order explains all answers and snapshots too; a counted version would tell",
    ("mask", "masked-id"): "an id full of chance passes for one that is minted anew each time: that most siblings show"
    " the same one is not looked at",
}  # fmt: skip
RECALL = """
*Findings each*: how many findings tell one fault, or one fault and the episode that it came from. *Episodes side by
side* are workers, each with an instance of its own in one process. *1 in 10* strikes at each tenth reset. *First found
in episode*: the episodes of the cell counted from 1; the first on each instance is never spoilt by a reset.
"""
PRECISION = """
*Right place, other kind*: the finding names an exchange or a row that the injector had spoilt, but calls it something
else, as where a stale answer is told as an answer that changed. It is not wrong, and no hit either.
"""
CONTROLS = "What only looks like a fault. All of it should be 0."
CLEAN = "Nothing was injected: one lane alone, one lane with four episodes side by side, and four lanes."
ABLATION = """
The same recordings judged with less. *No lanes*: all exchanges of an episode are taken for one lane's. *No version
tokens*: without ETag, version and time of change, in answers and in the state.
"""
UNNAMED = """
Where each reset is bad, most starts are wrong and no majority says what is right: the cells that strike at every reset
were judged with `--reference` naming the first episode, which began on a fresh instance. Without it:
"""
METAMORPHIC = """
## What must not matter

Recordings of five cells are changed in memory and judged again in `make test` (`tests/faults/test_metamorphic.py`):
when everything takes ten times as long, when all minted ids are called something else, when lanes change their names,
and when the ledger's marks are taken off the requests, no verdict and no finding changes; without the exchanges that
showed a fault its finding is gone. The rule for stale reads is held against brute-force linearizability on small random
histories in `tests/detect/test_history.py`.
"""
TAIL = """
## What this does not show

- How often such faults occur in environments of others, or how their own faults look. Both environments, their agents
  and their injectors were written for this page.
- Recall under loads unlike these. Reads and writes are dense here: with more time between them more is seen.
- Anything about faults that leave no trace in answers or snapshots; the ledger does not count those as occurred.
- That a finding hurt an agent.
"""
