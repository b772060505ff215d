"""Which models may be released: one that was fitted, or a stack, whose different heads share the budget.

The weights of a stack were chosen by the images; its heads count alike where they are released. Their noises are
independent: k releases with √k times the noise are together as private as one (they compose as one Gaussian mechanism).
"""

from __future__ import annotations

from dataclasses import replace

from lqf.changes.privacy.release import Budget, check_suitable, released
from lqf.data import Images, with_views
from lqf.errors import LQFError
from lqf.fitting import Context, FittedModel, Model, Stack


def check_model(model: Model, budget: Budget) -> None:
    """Refuse what the proof does not cover, before any work is done."""
    if isinstance(model, FittedModel):
        check_suitable(model, budget)
        return
    if model.report.not_the_fit:
        raise LQFError(f"{model.report.not_the_fit}; release the model that it was made from")
    if budget.part != "head":
        raise LQFError("of a stack the heads are released; give the part head, or fit one model with the solver dense")
    for member in model.members:
        check_suitable(member, budget)


def privatise(model: Model, budget: Budget, train: Images, context: Context) -> Model:
    """The model that may be released.

    Args:
        model: fitted; its network has its pretrained weights.
        budget: of privacy.
        train: the training images, in any views.
        context: device, progress and rows per batch.
    """
    check_model(model, budget)
    if isinstance(model, FittedModel):
        return released(model, budget, with_views(train, model.trained_on), context)
    heads = _different(model)
    k = len(heads)
    found = []
    for i, member in enumerate(heads.values()):
        own = replace(budget, releases=k, seed=None if budget.seed is None else budget.seed + i)
        found.append(released(member, own, with_views(train, member.trained_on), context))
    first = found[0]
    if k == 1:
        return first
    named = [name for m in found for name in (m.report.privacy or {})["not_private"]]
    proof = (first.report.privacy or {}) | {
        "members": k,
        "mechanism": f"{(first.report.privacy or {})['mechanism']}, of {k} heads together",
        "not_private": [*dict.fromkeys(named), "the choice of the members"],
    }
    return replace(
        model,
        members=tuple(found),
        weights=(1 / k,) * k,
        names=tuple(heads),
        shares=(1 / k,) * k,
        beta=first.beta,
        train=first.train,
        loo=None,
        report=replace(first.report, solver="stack", unknowns=sum(m.report.unknowns for m in found), privacy=proof),
        settings=first.settings,
        tried={},
    )


def _different(stack: Stack) -> dict[str, FittedModel]:
    """Members whose heads see other features than those before them; of one kind one is enough."""
    kinds: dict[object, tuple[str, FittedModel]] = {}
    for name, member in zip(stack.names, stack.members, strict=True):
        kinds.setdefault((member.report.pooling, member.trained_on, member.preprocess), (name, member))
    return dict(kinds.values())
