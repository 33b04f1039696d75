"""Classifiers that were fitted to known classes."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures


def classifier(names=("ill", "well")):
    X = np.random.default_rng(2).normal(size=(400, 3))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    score = X[:, 0] * X[:, 1] + 0.5 * X[:, 2]
    places = (
        np.searchsorted(np.linspace(-0.6, 0.6, len(names) - 1), score) if len(names) > 2 else (score > 0).astype(int)
    )
    y = np.array(names)[places]
    products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
    return make_pipeline(products, LogisticRegression()).fit(frame, y), frame, y
