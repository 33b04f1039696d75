"""The report: a result as one self-contained, interactive HTML page.

The page opens from disk, loads nothing from the network and needs no other file. Vega-Lite, in ``vega.js``, draws the
charts; its licence is in ``vega.LICENSE.txt``.

``page``
    Fills the template ``page.html`` with the other parts and writes the file.
``content``
    The data of the page, as values that JSON can hold.
``charts``
    The charts, as Vega-Lite specifications.
``predictions``
    The section about single predictions.
``text``
    The sentences of the page, which notebooks and the command line show too.
"""
