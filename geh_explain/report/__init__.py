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
``verdict``
    The sentences at the top of the page, and the facts below them.
``text``
    Other sentences, which notebooks and the command line show too.
``names``
    Short names of units.

The script has six parts: ``page.js`` (data and state), ``page.table.js``, ``page.pair.js``, ``page.layout.js``,
``page.charts.js`` and ``page.start.js`` (controls). The style is in ``page.css``.
"""
