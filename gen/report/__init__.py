"""`gen report`: results as one HTML file, or as Markdown.

- `model`: what the files say, put together.
- `conclusions`: what follows from that, in sentences.
- `sections`: the tables; `pictures`: the figures (`bench_pictures`, `sweep_pictures`), drawn by
  `plots`, `heatmaps` and `roofline`, on `axes` alike, in the colours of `theme`.
- `gains`: the tables of `gen tune`.
- `sources`: each kernel's text with its resources; `profiles`: what `gen profile` counted.
- `html` fills `report.html.j2`; `markdown` is for a README.
"""

from __future__ import annotations

from gen.errors import MissingError
from gen.requirements import get_extra


def require_matplotlib() -> None:
    """Raises MissingError where matplotlib is not installed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise MissingError(f"plots need the package matplotlib; get it with: {get_extra('report')}")
