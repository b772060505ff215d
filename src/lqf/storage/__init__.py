"""A fitted model on disk: a folder of safetensors, JSON and CSV, written whole or not at all.

    model.json           format, backbone (name, hashes), preprocessing, classes, settings, report, hashes of the rest
    weights.safetensors  head, point, delta, leave-one-out outputs, the reduction of a bilinear pooling
    backbone.safetensors the network's weights, where they were moved away from those that its name stands for
    rungs.safetensors    out-of-sample outputs of every model that a climb has tried
    questions.safetensors  what questions about the training images need (`lqf.fitting.knowledge`); it may be missing
    quick_answers.json   what quick answers were worth (`lqf.analysis.quick_worth`), where exact ones have said so
    samples.csv          id, label, weight, group, sha256 of every training sample
    README.md            all of it for people: a model card, which anybody may edit
    member1, member2, …  the members of a stack, each a folder like this one; there are no weights beside them

Loading checks every hash; nothing is ever unpickled.
"""

from __future__ import annotations

from lqf.storage.layout import QUESTIONS
from lqf.storage.own_network import about_loading
from lqf.storage.read import load
from lqf.storage.write import check_target, kept_bytes, save

__all__ = ["QUESTIONS", "about_loading", "check_target", "kept_bytes", "load", "save"]
