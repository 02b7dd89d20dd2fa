"""Run every artefact: compute what is missing, write all tables and figures.

    python -m experiments --quick --jobs 2

Options are those of a single artefact; `--methods` and `--datasets` restrict what is
computed, for example to split the work between machines that share a folder of results.
"""

from __future__ import annotations

from experiments import (
    ablations,
    classification,
    coefficients,
    first_layer,
    local_explanations,
    nonlinearity,
    pmlb,
    rankings,
    real,
    regression,
    self_interaction,
    toy,
)
from experiments._run import Artefact, Results, parse_choice, run

ARTEFACTS: tuple[Artefact, ...] = tuple(
    module.ARTEFACT
    for module in (
        toy,
        regression,
        coefficients,
        first_layer,
        classification,
        real,
        rankings,
        ablations,
        self_interaction,
        local_explanations,
        nonlinearity,
        pmlb,
    )
)


def render_all(results: Results) -> dict[Artefact, object]:
    return {artefact: artefact.render(results) for artefact in ARTEFACTS}


def main() -> None:
    choice = parse_choice(__doc__ or "")
    results = run(ARTEFACTS, choice)
    if choice.cells_only:
        return
    for artefact, page in render_all(results).items():
        page.write(choice.out, artefact.stem)
    print(f"Tables and figures are in {choice.out}.")


if __name__ == "__main__":
    main()
