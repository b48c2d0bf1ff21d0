"""The audit, and figure 1."""

from dataclasses import asdict

from directloss.experiments import audit_command, distribution
from directloss.report.parts import Cell, Rows, Section, Source, Table, inline
from directloss.runs import config_hash


def audit_section(rows: dict[str, Rows]) -> Section:
    """The auditor's plots, and the orders of the bias."""
    tables, drawn, sources = [], [], []
    for number, row in enumerate(rows["audit"]):
        name = f"{row['structure']} of size {row['size']}" + f", k = {row['k']}" * (row["structure"] == "subset")
        figure = audit_command.draw(row["rows"])
        figure.set_size_inches(13.5, 7.2)  # drawn for a wider page than this one
        drawn.append((inline(figure, f"audit-{number}"), f"Bias, deviation, cosine and zero gradients: {name}"))
        body = [
            (
                f"{slope['target']}, σ = {slope['scale']:g}, {slope['rule']}",
                [Cell(f"{slope['slope']:.2f}", [f"± {slope['error']:.2f}"])],
            )
            for slope in row["slopes"]
            if slope["slope"] is not None and slope["error"] is not None
        ]
        if body:
            caption = f"Order of the bias in epsilon (theory: 1 for one side, 2 for both): {name}"
            tables.append(Table(caption, ("order",), body))
        options = " ".join(
            f"--{option}={row[option]}"
            for option in ("structure", "size", "k", "scales", "epsilons", "samples", "repetitions", "seed")
            if row[option] != ""
        )
        sources.append(
            Source(
                name,
                f"directloss audit {options}",
                str(row["seed"]),
                row["code"],
                f"standard errors over {row['repetitions']:,} calls for each setting",
            )
        )
    return Section(
        "audit",
        "Is the gradient right?",
        "The estimator's gradients against exact ones, on instances small enough to enumerate every structure. "
        "The two-sided rule has a bias of second order in epsilon, and less variance.",
        "directloss audit",
        tables,
        drawn,
        sources,
    )


def distribution_section(rows: dict[str, Rows]) -> Section:
    """Figure 1, of the instances that the command takes."""
    saved = {row["config_hash"]: row for row in rows["distribution"]}
    keys = [config_hash("distribution", asdict(instance)) for instance in distribution.INSTANCES]
    found = [saved[key] for key in keys if key in saved]
    caption = "Probabilities over the noise's scale, and distances to Gibbs"
    return Section(
        "distribution",
        "Figure 1: what the noise does",
        "The probability of every structure as the scale of the noise grows: from one structure to all alike. With one "
        "Gumbel variable for each entry the distribution is not a Gibbs distribution, at no temperature.",
        "directloss distribution",
        figures=[(inline(distribution.draw(found), "distribution"), caption)] if found else [],
        sources=[
            Source(
                row["structure"],
                "directloss distribution",
                str(row["seed"]),
                row["code"],
                f"standard error of a probability at most {max(point['error'] for point in row['points']):.4f}",
            )
            for row in found
        ],
    )
