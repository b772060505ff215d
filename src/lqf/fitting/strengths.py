"""Ridge strengths that mean the same around another linearisation point: in the kernels' own units."""

from __future__ import annotations

from dataclasses import dataclass

from lqf.errors import LQFError
from lqf.linear.ridge import Ridge
from lqf.settings import Settings

Stages = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Used:
    """Ridge strengths of one solve.

    Attributes:
        point: μ of the head(s) at the linearisation point.
        head, body: of the problem.
        stages: (name, μ) of stages with a strength of their own.
    """

    point: float
    head: float
    body: float
    stages: Stages = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple((name, mu) for name, mu in self.stages))  # JSON has lists

    @classmethod
    def of(cls, point: float, ridge: Ridge) -> Used:
        """Those of a problem."""
        return cls(point, ridge.head, ridge.body, ridge.stages)

    @property
    def ridge(self) -> Ridge:
        """Of the problem."""
        return Ridge(self.head, self.body, self.stages)


@dataclass(frozen=True)
class Strengths:
    """Ridge strengths relative to the kernels.

    Attributes:
        point, head: μ over the mean eigenvalue of the head's kernel.
        ratio: μ_body/μ_head over tr K_body / tr K_head, where stages count in K_body by μ_body/μ_s.
        stages: (name, μ_s/μ_body) of stages with a strength of their own.
    """

    point: float
    head: float
    ratio: float
    stages: Stages = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple((name, mu) for name, mu in self.stages))

    @classmethod
    def of(cls, used: Used, point: float, head: float, unit: float) -> Strengths:
        """From what was used with kernels of these mean eigenvalues, of the point's features and of the head's, and
        with this tr K_body / tr K_head.
        """
        stages = tuple((name, mu / used.body) for name, mu in used.stages)
        return cls(used.point / point, used.head / head, used.body / used.head / unit, stages)

    def at(self, head: float, unit: float, settings: Settings, total_weight: float) -> Ridge:
        """With other kernels: the head's mean eigenvalue, and tr K_body / tr K_head. A weight decay that the user gave
        stays as it is.
        """
        given = settings.weight_decay
        mu = self.head * head if given == "auto" else float(given) * total_weight
        body = self.ratio * unit * mu
        if settings.form == "w0":
            body = mu
        elif settings.body_weight_decay != "auto":
            body = float(settings.body_weight_decay) * total_weight
        if not body > 0:
            raise LQFError(
                "after the network was moved no weight of its body acts on the outputs any more; "
                "give a larger body_weight_decay, or a smaller learning_rate to the fine-tuning"
            )
        return Ridge(mu, body, tuple((name, factor * body) for name, factor in self.stages))

    def point_at(self, scale: float, settings: Settings, total_weight: float) -> float:
        """μ of the head(s) at another point, where the kernel has this mean eigenvalue."""
        if settings.weight_decay != "auto":
            return float(settings.weight_decay) * total_weight
        return self.point * scale
