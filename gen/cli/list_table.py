"""What `gen list` prints."""

from __future__ import annotations

from collections.abc import Sequence

from gen.cli.tables import table
from gen.kernels.registry import make_spec
from gen.kernels.variant import Variant


def variants(rows: Sequence[Variant]) -> None:
    """The table of `gen list`."""
    lines = []
    for row in rows:
        defaults = make_spec(row.name).tunables
        tunables = [f"{t.name} {t.values} [{t.show(defaults[t.name])}]" for t in row.tunables]
        since = row.default_arch if row.max_arch else f"sm_{row.min_arch}"
        lines.append((row.name, row.summary, " ".join(row.dtypes), since, ", ".join(tunables)))
    table(("variant", "what it is", "dtypes", "from", "tunables [default]"), lines)


def variant(row: Variant) -> None:
    """What `gen list NAME` prints."""
    spec = make_spec(row.name)
    since = row.default_arch if row.max_arch else f"sm_{row.min_arch} or newer"
    about = [
        ("what it is", row.summary),
        ("types", " ".join(row.dtypes)),
        ("layouts", "r or c for each of A, B, and C with D; default rrr"),
        ("architectures", f"{since}; default {row.default_arch}"),
        ("template", row.template),
    ]
    for name, text in about:
        print(f"{name:14}{text}")
    print()
    headers = ("option", "values", "default", "meaning")
    table(
        headers,
        [
            (f"--{t.name.replace('_', '-')}", t.values, t.show(spec.tunables[t.name]), t.help)
            for t in row.tunables
        ],
    )
    first = row.tunables[0]
    option = f"--{first.name.replace('_', '-')} {first.show(spec.tunables[first.name])}"
    print(f"\nDefaults are those of {spec.dtypes.name} on {spec.arch}. An example:")
    print(f"  gen emit --variant {row.name} --dtype {spec.dtypes.name} {option}")


def variant_fields(variant: Variant) -> dict[str, object]:
    """A row of the registry, as `gen list --json` has it."""
    defaults = make_spec(variant.name).tunables
    return {
        "name": variant.name,
        "summary": variant.summary,
        "dtypes": list(variant.dtypes),
        "min_arch": f"sm_{variant.min_arch}",
        "tunables": [
            {
                "name": t.name,
                **t.limits(),
                "default": defaults[t.name],
                "help": t.help,
            }
            for t in variant.tunables
        ],
    }
