"""What is known of the error on unseen images after a change by conjugate gradients: an estimate, or that it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fits import classifier, data
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut

N = 30
X, Y = data(N + 4, 3)


def fitted(**given: Any) -> LQFClassifier:
    asked: dict[str, Any] = {"solver": "pcg", "loo": "kernel", "tol": 1e-4, "max_passes": 200} | given
    return classifier(**asked).fit(X[:N], Y[:N])


def test_forgetting_leaves_the_estimate_of_the_averaged_kernel_on_what_remains() -> None:
    model = fitted()
    before, beta = model.fitted_.loo, model.fitted_.beta
    known = model.fitted_.known.tensors
    q, lam = known["averaged_q"], known["averaged_lam"]
    model.forget(["0", "7"], train=X[:N])
    stays = torch.tensor([i for i in range(N) if i not in (0, 7)])
    now = model.fitted_.loo
    assert isinstance(now, LeaveOneOut)
    assert isinstance(before, LeaveOneOut)
    assert now.level == before.level == "estimated"
    assert "roughly, by the kernel averaged over the outputs" in now.note
    cut = model.fitted_.known.tensors
    kernel = (q * lam) @ q.T
    torch.testing.assert_close(
        (cut["averaged_q"] * cut["averaged_lam"]) @ cut["averaged_q"].T, kernel[stays][:, stays], rtol=1e-9, atol=1e-9
    )
    assert now.outputs.shape == (N - 2, 3)
    assert model.report_["loo_error"] == now.error
    assert model.fitted_.beta == beta
    moved = (now.outputs - before.outputs[stays]).norm() / before.outputs.norm()
    assert 0 < float(moved) < 0.5
    model.forget(["3"], train=X[:N])  # and once more
    assert model.fitted_.loo is not None


@pytest.mark.parametrize("loo", ["none", "kernel"])
def test_adding_says_that_nothing_is_known(loo: str, tmp_path: Path) -> None:
    model = fitted(loo=loo)
    model.add(X[N:], Y[N:], train=X[:N])
    assert model.report_["loo_error"] is None
    sentence = "error on unseen images not known since images were added: it is not made again by pcg"
    assert model.fitted_.report.error_unknown == sentence
    assert sentence in repr(model.fitted_.report)
    with pytest.raises(LQFError, match=f"{sentence}; use a labelled test set"):
        model.leave_one_out()
    model.save(tmp_path / "run")
    card = (tmp_path / "run" / "README.md").read_text()
    assert "Error on unseen images not known since images were added" in card
    assert LQFClassifier.load(tmp_path / "run", backbone=model.backbone).fitted_.report.error_unknown == sentence


def test_a_fit_and_what_is_known_say_nothing_of_that() -> None:
    assert fitted(loo="none").fitted_.report.error_unknown == ""
    dense = classifier(solver="dense").fit(X[:N], Y[:N])
    dense.add(X[N:], Y[N:], train=X[:N])
    assert dense.fitted_.report.error_unknown == ""
    assert np.isfinite(dense.report_["loo_error"])


def test_after_relabelling_it_is_said_that_images_were_relabelled() -> None:
    model = fitted(loo="none")
    model.relabel({"0": str(1 - int(Y[0] == 1))}, train=X[:N])
    assert "not known since images were relabelled: " in model.fitted_.report.error_unknown
