"""Write geh_explain/report/vega.js, the charting library inside every report page: ``python tools/bundle_vega.py``.

Needs the package vl-convert-python, which contains Vega, Vega-Lite and Vega-Embed (BSD-3-Clause) and bundles them.
"""

from pathlib import Path

import vl_convert

TARGET = Path(__file__).parents[1] / "geh_explain" / "report" / "vega.js"


def main() -> None:
    """Bundle ``vegaEmbed`` and what it needs, leave nothing else in the global scope, and write the file."""
    versions = f"vega {vl_convert.get_vega_version()}, vega-lite {vl_convert.get_vegalite_versions()[-1]}, "
    versions += f"vega-embed {vl_convert.get_vega_embed_version()}"
    code = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in code.lower():
        raise RuntimeError("The bundle contains </script, which would end the script element of a page.")
    owner = "Copyright (c) University of Washington Interactive Data Lab, BSD-3-Clause licence; see vega.LICENSE.txt."
    header = f"/* {versions}. {owner} */"
    TARGET.write_text(f"{header}\n(() => {{\n{code}\n}})();\n", encoding="utf-8")
    print(f"{TARGET}: {versions}, {TARGET.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
