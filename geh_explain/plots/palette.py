"""Colours that colour-blind readers can tell apart (Okabe and Ito), used by every picture."""

SURE = "#0072B2"
UNSURE = "#9a9a9a"
MARK = "#D55E00"
LINE = "#444444"
STRENGTH = "Blues"
NONE = "#ececec"
POSITIVE, NEGATIVE, NEUTRAL = "#B2182B", "#2166AC", UNSURE
SIGNED = "RdBu_r"
MEASURES = {"aeh": "#E69F00", "geh": SURE, "eah": "#009E73"}
