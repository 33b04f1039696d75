"""Colours of all plots and of the report, distinguishable by colour-blind readers (Okabe and Ito)."""

#: Pairs that a rule accepts, and lines without another meaning.
SURE = "#0072B2"
#: Pairs that a rule does not accept, and reference lines.
UNSURE = "#9a9a9a"
#: Marks on top of data: means, chosen values.
MARK = "#D55E00"
#: The part of a score that held-out labels confirm.
SUPPORTED = "#009E73"
#: Axes, outlines and small text.
LINE = "#444444"
#: Colour map of scores, which are not negative.
STRENGTH = "Blues"
#: Empty cells and baselines.
NONE = "#ececec"
#: Cells of pairs that were not computed.
UNKNOWN = "#c4c4c4"
#: Effects by their sign.
POSITIVE = "#B2182B"
NEGATIVE = "#2166AC"
NEUTRAL = UNSURE
#: Colour map of signed effects, centred at 0; red is positive.
SIGNED = "RdBu_r"
#: Measures, where several are drawn together.
MEASURES = {"aeh": "#E69F00", "geh": SURE, "eah": "#009E73"}
