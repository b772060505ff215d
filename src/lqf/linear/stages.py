"""The stages of a linearised network, in a few groups that have a ridge strength each."""

from __future__ import annotations

from collections.abc import Sequence

from lqf.backbones.prefix import stages
from lqf.linear.linearize import Linearization
from lqf.linear.ridge import Ridge, stage_of

Groups = tuple[tuple[str, ...], ...]
"""Names of the stages in each group, in forward order; the empty name stands for weights of no stage."""
REST = ""
MOST_GROUPS = 9
"""More strengths than this are not worth what it takes to choose them: neighbouring stages share one."""


def stage_groups(body: Linearization, most: int = MOST_GROUPS) -> Groups:
    """The stages that the linearised weights belong to, at most so many groups of neighbours.

    Weights of no stage (position embeddings, class tokens) go with the first. A network that cannot be cut is one
    group.
    """
    names = stages(body.module)
    used = {stage_of(weight, names) for weight in body.layout.names}
    found = [[name] for i, name in enumerate(names) if i in used]
    if not found:
        return ((REST,),)
    while len(found) > most:
        sizes = [_size(body, group) for group in found]
        at = min(range(len(found) - 1), key=lambda i: sizes[i] + sizes[i + 1])
        found[at : at + 2] = [found[at] + found[at + 1]]
    if None in used:
        found[0].append(REST)
    return tuple(tuple(group) for group in found)


def group_of(weight: str, groups: Groups) -> int:
    """Number of the group that a weight belongs to, by its name."""
    names = [(name, i) for i, group in enumerate(groups) for name in group]
    at = stage_of(weight, [name for name, _ in names if name != REST])
    if at is not None:
        return [i for name, i in names if name != REST][at]
    return next(i for name, i in names if name == REST)


def ridge_by_groups(head: float, strengths: Sequence[float], groups: Groups, middle: float) -> Ridge:
    """Ridge strengths from one for every group; ``middle``: that of weights of no group, for the report alone."""
    pairs = [(name, float(mu)) for mu, group in zip(strengths, groups, strict=True) for name in group]
    body = next((mu for name, mu in pairs if name == REST), middle)
    return Ridge(head, body, tuple((name, mu) for name, mu in pairs if name != REST))


def _size(body: Linearization, group: Sequence[str]) -> int:
    own = zip(body.layout.names, body.layout.sizes, strict=True)
    return sum(size for weight, size in own if stage_of(weight, group) is not None)
