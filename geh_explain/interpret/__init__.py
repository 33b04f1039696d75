"""Interpretation of hidden units by the inputs that excite them most.

Such inputs are found in two ways: by search among candidates (:func:`exemplars`) or by gradient ascent from noise
(:func:`maximise`). :func:`reading` summarises labelled exemplars by their majority label. ``explainer.interpret``
combines all three for the strongest pairs of a result and returns a :class:`Gallery`.
"""

from geh_explain.interpret.ascent.maximisation import Maximised, maximise
from geh_explain.interpret.exemplar_search import exemplars
from geh_explain.interpret.exemplar_set import Exemplars
from geh_explain.interpret.gallery import Gallery, PairView
from geh_explain.interpret.readings import Reading, half_blank, reading

__all__ = [
    "Exemplars",
    "Gallery",
    "Maximised",
    "PairView",
    "Reading",
    "exemplars",
    "half_blank",
    "maximise",
    "reading",
]
