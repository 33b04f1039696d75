"""What units respond to: the inputs that excite them most, found among candidates or painted by gradient ascent."""

from geh_explain.interpret.ascent.maximisation import Maximised, maximise
from geh_explain.interpret.exemplar_search import Exemplars, exemplars
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
