"""Leave-one-out probabilities as cleanlab's input."""

import numpy as np
import pytest

from audited import TURNED
from fits import classifier, data
from lqf.reports.cleanlab import for_cleanlab


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_those_of_models_without_the_sample(n_classes):
    x, y = data(18, n_classes)
    decay = {"weight_decay": 0.1, "solver": "head"}
    model = classifier(**decay).fit(x, y)
    given = for_cleanlab(model)
    assert given["pred_probs"].shape == (18, n_classes)
    np.testing.assert_allclose(given["pred_probs"].sum(1), 1)
    np.testing.assert_array_equal(given["labels"], y)
    for i in (0, 7):
        rest = np.arange(18) != i
        without = classifier(**decay | {"weight_decay": 0.1 * 18 / 17}).fit(x[rest], y[rest])  # μ = λN stays
        f = without.decision_function(x[i : i + 1])
        logits = np.stack([0 * f, f], 1)[0] if n_classes == 2 else f[0]
        expected = np.exp(model.fitted_.beta * logits)
        np.testing.assert_allclose(given["pred_probs"][i], expected / expected.sum(), rtol=1e-7)


def test_cleanlab_finds_the_turned_label(model):
    find = pytest.importorskip("cleanlab.filter").find_label_issues
    found = find(**for_cleanlab(model), return_indices_ranked_by="self_confidence")
    assert model.fitted_.train.ids[found[0]] == TURNED
