"""Pairs two sequences so that one extra step is one insertion, not a shift of all that follows.

`common` finds a long common subsequence of keys: equal ends are trimmed, keys that occur once on each side anchor
the rest (patience), and between anchors Myers' algorithm is exact while the edit distance is small; beyond that the
k-th occurrence of a key meets the k-th. So the cost is near to linear, however different the sequences are.
`align` also pairs near misses that lie between the same two matches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

WINDOW = 200
"""Near misses are scored pair by pair only in gaps of at most this many steps on either side."""

_MOST_LANES = 64  # lanes of other names and other steps are compared pair by pair up to this number
_MAX_EDITS = 256  # Myers keeps a row for each edit: 256 cost 64k steps, and a real diff rarely needs more in one gap

type Pairs = list[tuple[int, int]]
type Alignment = list[tuple[int | None, int | None]]


def common(a: Sequence[Hashable], b: Sequence[Hashable]) -> Pairs:
    """Index pairs of a common subsequence, ascending in both; the longest one where that is cheap."""
    pairs: Pairs = []
    _common(a, b, 0, len(a), 0, len(b), pairs)
    return pairs


def _common(a: Sequence[Hashable], b: Sequence[Hashable], i: int, n: int, j: int, m: int, out: Pairs) -> None:
    """Appends the pairs of a[i:n] and b[j:m]."""
    while i < n and j < m and a[i] == b[j]:
        out.append((i, j))
        i, j = i + 1, j + 1
    tail: Pairs = []
    while i < n and j < m and a[n - 1] == b[m - 1]:
        n, m = n - 1, m - 1
        tail.append((n, m))
    if i < n and j < m:
        anchors = _anchors(a, b, i, n, j, m)
        if anchors:
            for x, y in [*anchors, (n, m)]:
                _common(a, b, i, x, j, y, out)
                if x < n:
                    out.append((x, y))
                i, j = x + 1, y + 1
        else:
            found = _myers(a, b, i, n, j, m)
            out += _occurrences(a, b, i, n, j, m) if found is None else found
    out += reversed(tail)


def _anchors(a: Sequence[Hashable], b: Sequence[Hashable], i: int, n: int, j: int, m: int) -> Pairs:
    """The keys that occur once on each side, as the longest chain in which both sides ascend."""
    seen_a, seen_b = Counter(a[i:n]), Counter(b[j:m])
    place = {b[y]: y for y in range(j, m) if seen_b[b[y]] == 1}
    return _ascending([(x, place[a[x]]) for x in range(i, n) if seen_a[a[x]] == 1 and a[x] in place])


def _occurrences(a: Sequence[Hashable], b: Sequence[Hashable], i: int, n: int, j: int, m: int) -> Pairs:
    """The k-th occurrence of a key meets its k-th on the other side; then the longest ascending chain."""
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for y in range(m - 1, j - 1, -1):
        places[b[y]].append(y)
    return _ascending([(x, places[a[x]].pop()) for x in range(i, n) if places.get(a[x])])


def _ascending(pairs: Pairs) -> Pairs:
    """The longest subsequence of pairs (ascending in the first member) that also ascends in the second."""
    tops: list[int] = []
    at: list[int] = []
    back: list[int] = []
    for index, (_, y) in enumerate(pairs):
        slot = bisect_left(tops, y)
        if slot == len(tops):
            tops.append(y)
            at.append(index)
        else:
            tops[slot], at[slot] = y, index
        back.append(at[slot - 1] if slot else -1)
    chain: Pairs = []
    index = at[-1] if at else -1
    while index >= 0:
        chain.append(pairs[index])
        index = back[index]
    return chain[::-1]


def _myers(a: Sequence[Hashable], b: Sequence[Hashable], i: int, n: int, j: int, m: int) -> Pairs | None:
    """The greedy algorithm of Myers (1986); None when more than `_MAX_EDITS` edits would be needed."""
    width, height = n - i, m - j
    far: dict[int, int] = {1: 0}
    rows: list[dict[int, int]] = []
    for edits in range(min(width + height, _MAX_EDITS) + 1):
        rows.append(dict(far))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and far.get(k - 1, -1) < far.get(k + 1, -1))
            x = far[k + 1] if down else far[k - 1] + 1
            while x < width and 0 <= x - k < height and a[i + x] == b[j + x - k]:
                x += 1
            far[k] = x
            if x >= width and x - k >= height:
                return _walk_back(rows, i, j, width, height)
    return None


def _walk_back(rows: list[dict[int, int]], i: int, j: int, x: int, y: int) -> Pairs:
    pairs: Pairs = []
    for edits in range(len(rows) - 1, -1, -1):
        far, k = rows[edits], x - y
        down = k == -edits or (k != edits and far.get(k - 1, -1) < far.get(k + 1, -1))
        before_k = k + 1 if down else k - 1
        before_x = far[before_k]
        before_y = before_x - before_k
        while x > max(before_x, 0) and y > max(before_y, 0):
            x, y = x - 1, y - 1
            pairs.append((i + x, j + y))
        x, y = before_x, before_y
    return pairs[::-1]


def align(
    a: Sequence[Hashable], b: Sequence[Hashable], likeness: Callable[[int, int], float], *, window: int = WINDOW
) -> Alignment:
    """Every index of both sides, in order, paired with its fellow or with None.

    Equal keys meet first. Between them, `likeness(x, y)` pairs what is similar (0: never a pair; at most 2): the
    sum of likenesses is maximal, a step left alone on either side costs 1. A gap wider than `window` is paired from
    its ends inwards, as long as the likeness holds.
    """
    out: Alignment = []
    i = j = 0
    for x, y in [*common(a, b), (len(a), len(b))]:
        out += _gap(i, x, j, y, likeness, window)
        if x < len(a):
            out.append((x, y))
        i, j = x + 1, y + 1
    return out


def _gap(i: int, n: int, j: int, m: int, likeness: Callable[[int, int], float], window: int) -> Alignment:
    if i == n or j == m:
        return [(x, None) for x in range(i, n)] + [(None, y) for y in range(j, m)]
    if n - i <= window and m - j <= window:
        return _best(i, n, j, m, likeness)
    head: Alignment = []
    while i < n and j < m and likeness(i, j) > 0:
        head.append((i, j))
        i, j = i + 1, j + 1
    tail: Alignment = []
    while i < n and j < m and likeness(n - 1, m - 1) > 0:
        n, m = n - 1, m - 1
        tail.append((n, m))
    middle: Alignment = [(x, None) for x in range(i, n)]
    middle += [(None, y) for y in range(j, m)]
    return head + middle + tail[::-1]


def _best(i: int, n: int, j: int, m: int, likeness: Callable[[int, int], float]) -> Alignment:
    """Needleman and Wunsch: gap -1, a pair counts its likeness, a likeness of 0 is no pair."""
    width, height = n - i, m - j
    score = [[-float(y) for y in range(height + 1)]]
    for x in range(1, width + 1):
        row = [-float(x)]
        for y in range(1, height + 1):
            best = max(score[x - 1][y], row[y - 1]) - 1
            like = likeness(i + x - 1, j + y - 1)
            row.append(max(best, score[x - 1][y - 1] + like) if like > 0 else best)
        score.append(row)
    out: Alignment = []
    x, y = width, height
    while x and y:
        like = likeness(i + x - 1, j + y - 1)
        if like > 0 and score[x][y] == score[x - 1][y - 1] + like:
            x, y = x - 1, y - 1
            out.append((i + x, j + y))
        elif score[x][y] == score[x][y - 1] - 1:
            y -= 1
            out.append((None, j + y))
        else:
            x -= 1
            out.append((i + x, None))
    out += [(None, j + y) for y in range(y - 1, -1, -1)]
    out += [(i + x, None) for x in range(x - 1, -1, -1)]
    return out[::-1]


def match_lanes(
    a: Mapping[str, Sequence[Hashable]], b: Mapping[str, Sequence[Hashable]]
) -> list[tuple[str | None, str | None]]:
    """Which lane of A is which of B: by name, else by the most in common; a lane with nothing in common is alone."""
    pairs: list[tuple[str | None, str | None]] = [(name, name) for name in a if name in b]
    left, right = [name for name in a if name not in b], [name for name in b if name not in a]
    equal = _equal_lanes(left, right, a, b)
    pairs += equal
    met = {x for x, _ in equal}, {y for _, y in equal}
    left, right = [name for name in left if name not in met[0]], [name for name in right if name not in met[1]]
    shared = sorted(
        (-_in_common(a[x], b[y]), p, q)
        for p, x in enumerate(left[:_MOST_LANES])
        for q, y in enumerate(right[:_MOST_LANES])
    )
    free_a, free_b = set(range(len(left))), set(range(len(right)))
    for score, p, q in shared:
        if score and p in free_a and q in free_b:
            free_a.remove(p)
            free_b.remove(q)
            pairs.append((left[p], right[q]))
    return pairs + [(left[p], None) for p in sorted(free_a)] + [(None, right[q]) for q in sorted(free_b)]


def _equal_lanes(
    left: Sequence[str], right: Sequence[str], a: Mapping[str, Sequence[Hashable]], b: Mapping[str, Sequence[Hashable]]
) -> list[tuple[str, str]]:
    """Lanes that did the very same, the first with the first: random names cost nothing where nothing else differs."""
    waiting: defaultdict[tuple[Hashable, ...], list[str]] = defaultdict(list)
    for name in reversed(right):
        waiting[tuple(b[name])].append(name)
    return [(name, waiting[key].pop()) for name in left if waiting.get(key := tuple(a[name]))]


def _in_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    # The multiset bounds the common subsequence from above and needs no alignment of lanes that share nothing.
    return len(common(a, b)) if Counter(a) & Counter(b) else 0
