"""Leave-one-out after a change of the training data is that of the changed problem, solved again without each unit."""

import pytest
import torch
from torch import Tensor

from fits import classifier, data
from lqf.analysis.changed_out_of_sample import changed_out_of_sample, unit_blocks
from lqf.analysis.dual import Dual
from lqf.analysis.units import Units
from lqf.errors import LQFError
from lqf.kernels.ridge import KernelRidge
from refitted_stacks import WEIGHTS, X, adopting, fitted_members

MU = 0.3


def brute(z: Tensor, r: Tensor, s: Tensor, leaves: Tensor) -> Tensor:
    """Residuals of some rows after ridge regression on the others."""
    stay = s * ~leaves
    gram = z.T @ (stay[:, None] * z) + MU * torch.eye(z.shape[1], dtype=z.dtype)
    return r[leaves] - z[leaves] @ torch.linalg.solve(gram, z.T @ (stay[:, None] * r))


@pytest.mark.parametrize("p", [4, 40], ids=["thin", "square"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("shared", [True, False], ids=["head", "dense"])
def test_it_is_what_solving_again_gives(p, grouped, shared):
    n, views, c = 9, 2, 2
    torch.manual_seed(1)
    rows = n * views
    r = torch.randn(rows, c, dtype=torch.float64)
    z = torch.randn(rows if shared else rows * c, p, dtype=torch.float64)
    s = (0.5 + torch.rand(n, dtype=torch.float64)).repeat_interleave(len(z) // n)
    units = Units.of([str(i) for i in range(n)], [str(i // 3) for i in range(n)] if grouped else None)
    samples, rho = torch.tensor([1, 4, 7]), torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    shift = torch.tensor([[0.0, 0.0], [2.0, -2.0], [1.0, 0.0]], dtype=torch.float64)

    dual = Dual(KernelRidge.from_features(z, s), MU, r, views)
    found = changed_out_of_sample(dual, unit_blocks(dual, units), samples, rho, shift)

    moved = r.clone().view(n, views, c)
    moved[samples] += shift[:, None]
    moved, layout = moved.reshape(rows, c), (rows, c) if shared else (rows * c, 1)
    factor = torch.ones(n, dtype=torch.float64)
    factor[samples] += rho
    weights = s * factor.repeat_interleave(len(z) // n)
    for u in range(len(units)):
        leaves = (units.member == u).repeat_interleave(len(z) // n)
        expected = brute(z, moved.reshape(layout), weights, leaves)
        torch.testing.assert_close(found.reshape(layout)[leaves], expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "params", [{"solver": "head"}, {"head": "random", "body_weight_decay": 0.2}], ids=["head", "dense"]
)
def test_every_sample_is_predicted_by_the_changed_model_without_it(params):
    x, y = data(12)
    model = classifier(weight_decay=0.1, **params).fit(x, y)
    analysis = model.analyse(x, y)
    same = analysis.changed_leave_one_out()
    torch.testing.assert_close(same.outputs, analysis.leave_one_out().outputs)
    changed = analysis.changed_leave_one_out(without=[3], relabel={5: "0"})
    assert changed.level == "exact"
    assert changed.weights[3] == 0
    assert int(changed.labels[5]) == 0
    for i in range(12):
        expected = analysis.what_if(x[[i]], without={3, i}, relabel={5: "0"}).outputs[0]
        torch.testing.assert_close(changed.outputs[i], expected, rtol=1e-8, atol=1e-9)


def test_iterative_methods_refuse():
    x, y = data(15)
    model = classifier(solver="dense", weight_decay=0.1, body_weight_decay=0.2).fit(x, y)
    analysis = model.analyse(x, y, method="pcg")
    with pytest.raises(LQFError, match="heads and dense fits"):
        analysis.changed_leave_one_out(without=[0])


def test_the_members_of_a_stack_add_up():
    members = fitted_members()
    analysis = adopting(members).analyse(X)
    changed = analysis.changed_leave_one_out(without=[2], relabel={4: "1"})
    parts = [m.analyse(X).changed_leave_one_out(without=[2], relabel={4: "1"}).outputs for m in members]
    expected = sum(w * f for w, f in zip(WEIGHTS, parts, strict=True))
    torch.testing.assert_close(changed.outputs, expected, rtol=1e-9, atol=1e-10)
