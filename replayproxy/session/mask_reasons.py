"""Why an episode is masked: the findings of the saved check that fall on it, in the words that a trainer reads.

One shape for `mask`, for its lines and columns, and for the answer of `POST /v1/episodes/E/end`: `{"kind", "grade",
"finding"}`, the last being the finding's stable id; `"from"` names the episode that suspicion spread from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replayproxy.detect.verdicts import SPREADS

type Reason = dict[str, Any]

GIVEN: Reason = {"kind": "given", "grade": None, "finding": None}
"""The rollout was masked already, by somebody else."""

LOST: Reason = {"kind": "lost", "grade": None, "finding": None}
"""The episode lost an exchange to a 5xx, a reset, a refusal or a timeout, and it never came through afterwards."""


WITHOUT_FINDING = {"given": "masked already", "lost": "lost an exchange"}


def reason(finding: Mapping[str, Any], source: str = "") -> Reason:
    """One finding (as JSON) as a reason. `source`: the episode that it spread from."""
    told = {"kind": finding["kind"], "grade": finding["grade"], "finding": finding["id"]}
    return told | {"from": source} if source else told


def reasons(document: Mapping[str, Any]) -> dict[str, list[Reason]]:
    """Episode -> its reasons, the strongest first, by a check's document. A finding that spread comes last."""
    found: dict[str, list[Reason]] = {}
    by_episode: dict[str, list[Mapping[str, Any]]] = {}
    run = document.get("run")
    for finding in document.get("findings", ()):
        name = str(finding.get("episode") or "").removeprefix(f"{run}/")
        by_episode.setdefault(name, []).append(finding)
        found.setdefault(name, []).append(reason(finding))
    for name, source in (document.get("suspected_from") or {}).items():
        spread = next((one for one in by_episode.get(source, ()) if one["kind"] in set(SPREADS)), None)
        if spread is not None:
            found.setdefault(name, []).append(reason(spread, source))
    return found


def told(reasons: Sequence[Reason]) -> str:
    """Reasons on one line: `proven stale-read, suspected state-bleed (spread from a)`."""
    parts = []
    for one in reasons:
        words = f"{one['grade']} {one['kind']}" if one["grade"] else WITHOUT_FINDING[one["kind"]]
        parts.append(words + (f" (spread from {one['from']})" if "from" in one else ""))
    return ", ".join(dict.fromkeys(parts))
