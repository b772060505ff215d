"""Data: from folders, manifests, data sets and arrays to a table of samples, and from there to batches of pixels.

Example:
    >>> samples = load_samples("photos/train")  # doctest: +SKIP
    >>> check_trainable(samples)  # doctest: +SKIP
    >>> images = open_images(samples, Preprocess(size=224))  # doctest: +SKIP
    >>> x = normalize(images.batch([0, 1, 2]), Preprocess(size=224), torch.float32)  # doctest: +SKIP
"""

from lqf.data.check import check_trainable
from lqf.data.has_labels import has_labels
from lqf.data.images import Images, open_images
from lqf.data.load import load_samples
from lqf.data.parts import has_pixels, select_images, with_labels, with_views, with_weights
from lqf.data.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess, normalize, standardize
from lqf.data.read import check_kind
from lqf.data.rows import rows_on
from lqf.data.samples import Samples
from lqf.data.shards import Shard, gather_images, held, open_shard
from lqf.data.unlabelled import load_unlabelled
from lqf.data.unread import open_known, open_known_shard

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Images",
    "Preprocess",
    "Samples",
    "Shard",
    "check_kind",
    "check_trainable",
    "gather_images",
    "has_labels",
    "has_pixels",
    "held",
    "load_samples",
    "load_unlabelled",
    "normalize",
    "open_images",
    "open_known",
    "open_known_shard",
    "open_shard",
    "rows_on",
    "select_images",
    "standardize",
    "with_labels",
    "with_views",
    "with_weights",
]
