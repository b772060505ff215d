"""How far the predictions of a changed model are from those of a refit of the same problem, from nothing."""

from __future__ import annotations

from dataclasses import replace

from lqf.changes.samples.forget import refitted
from lqf.changes.samples.members import After
from lqf.data import Images, with_views
from lqf.fitting import Context, FittedModel, Model, Stack
from lqf.linear.batch import usual_rows


def difference_to_refit(after: After, images: Images, context: Context) -> tuple[float, float]:
    """The largest difference of an output of these images, and the refit's largest output.

    Networks that were trained again have no problem to solve, and are as they are.
    """
    refits = [None if c is None else refitted(c, images, context) for c in after.changed]
    again = _with_members(after.model, refits)
    device, rows = context.device, context.settings.batch_size or usual_rows(context.device)
    shown = with_views(images, after.model.preprocess)
    mine, theirs = (
        m.outputs(shown, device=device, batch_size=rows, progress=context.progress) for m in (after.model, again)
    )
    return float((mine - theirs).abs().max()), float(theirs.abs().max())


def _with_members(model: Model, refits: list[FittedModel | None]) -> Model:
    if isinstance(model, Stack):
        pairs = zip(model.members, refits, strict=True)
        return replace(model, members=tuple(m if refit is None else refit for m, refit in pairs))
    return refits[0] or model
