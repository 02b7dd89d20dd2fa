"""Every table and figure of the NIMO paper, from data to picture.

One module per artefact; `python -m experiments --quick` runs them all, and
`python -m experiments.regression --help` shows the options that they share. Run from
the root of the repository.

    _data       simulated settings, real tables and their truth
    download    where the real tables come from
    _methods    sknimo, the paper's form of NIMO, ablations and rivals by name
    rivals/     compact versions of NAM, IMN and LocalGLMnet
    _measure    what is recorded of a fit
    _run        cells, the store of results, options, artefacts
    _tables, _figures   rendering
    report      results to `docs/reproduction.md`

The adapters of rivals are those of `benchmarks/`, whose modules are imported by their
bare names, as the scripts there do.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

if str(ROOT / "benchmarks") not in sys.path:
    sys.path.append(str(ROOT / "benchmarks"))
