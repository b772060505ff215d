# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
# ---

# %% [markdown]
# # First steps with lqf
#
# A notebook as a script: `jupytext --to ipynb docs/first_steps.py` makes the notebook, `python docs/first_steps.py FOLDER` runs it.
# FOLDER holds `train/CLASS/*.jpg` and `test/CLASS/*.jpg`; in a notebook it is `photos`.

# %%
import sys
from pathlib import Path

import lqf

given = [] if "ipykernel" in sys.argv[0] else sys.argv[1:]  # a notebook's own words are not meant
photos = Path(given[0] if given else "photos")
settings = dict(word.split("=", 1) for word in given[1:])  # e.g. size=96 solver=head

# %% [markdown]
# ## Fit
# Without settings a fit climbs from the closed-form head to better models, and keeps what is better on images left out.

# %%
model = lqf.LQFClassifier(**{name: int(v) if v.isdigit() else v for name, v in settings.items()})
model.fit(photos / "train")

# %%
model.leave_one_out().error, 1 - model.score(photos / "test")

# %% [markdown]
# ## Predict

# %%
images = sorted((photos / "test").glob("*/*"))[:3]
list(zip([path.name for path in images], model.predict([str(path) for path in images]).tolist(), strict=True))

# %% [markdown]
# ## Ask why
# In a notebook the explanation shows its pictures.

# %%
why = model.explain(str(images[0]))
why

# %%
why.to_frame().head()

# %% [markdown]
# ## Look for wrong labels

# %%
audit = model.audit()
audit

# %% [markdown]
# ## What if?
# The prediction of a model that had never seen the first three training images, without fitting it again.

# %%
model.what_if(str(images[0]), without=[0, 1, 2])
