"""Ridge strengths that mean the same around another linearisation point: in the kernels' own units."""

from __future__ import annotations

from dataclasses import dataclass

from lqf.errors import LQFError
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import Kernels
from lqf.linear.ridge import Ridge
from lqf.settings import Settings


@dataclass(frozen=True)
class Used:
    """Ridge strengths of one solve.

    Attributes:
        point: μ of the head(s) at the linearisation point.
        head, body: of the problem.
    """

    point: float
    head: float
    body: float

    @property
    def ridge(self) -> Ridge:
        """Of the problem."""
        return Ridge(self.head, self.body)


@dataclass(frozen=True)
class Strengths:
    """Ridge strengths relative to the kernels.

    Attributes:
        point, head: μ over the mean eigenvalue of the head's kernel.
        ratio: μ_body/μ_head over tr K_body / tr K_head.
    """

    point: float
    head: float
    ratio: float

    @classmethod
    def of(cls, used: Used, head: KernelRidge, kernels: Kernels) -> Strengths:
        """From what was used with these kernels."""
        return cls(used.point / head.scale, used.head / head.scale, used.body / used.head / kernels.unit)

    def at(self, head: KernelRidge, kernels: Kernels, settings: Settings, total_weight: float) -> Ridge:
        """With other kernels; a weight decay that the user gave stays as it is."""
        given = settings.weight_decay
        mu = self.head * head.scale if given == "auto" else float(given) * total_weight
        body = self.ratio * kernels.unit * mu
        if settings.form == "w0":
            body = mu
        elif settings.body_weight_decay != "auto":
            body = float(settings.body_weight_decay) * total_weight
        if not body > 0:
            raise LQFError(
                "after the network was moved no weight of its body acts on the outputs any more; "
                "give a larger body_weight_decay, or a smaller learning_rate to the fine-tuning"
            )
        return Ridge(mu, body)

    def point_at(self, head: KernelRidge, settings: Settings, total_weight: float) -> float:
        """μ of the head(s) at another point."""
        if settings.weight_decay != "auto":
            return float(settings.weight_decay) * total_weight
        return self.point * head.scale
