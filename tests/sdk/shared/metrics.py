"""Checks that dashboards and alert rules ask only for metrics and labels that the gateway has:
`python metrics.py CONF-FOLDER`, with the gateway's admin address in PENSTOCK_ADMIN."""

import json
import os
import pathlib
import re
import sys
import urllib.request

# `up` is made by Prometheus itself. The others are absent until there is a TLS listener, an archive, a fleet or a bucket
# for files; a unit test of the gateway checks that the alert rules name them as the gateway registers them.
KNOWN = {
    "up",
    "penstock_certificate_expires_seconds",
    "penstock_export_last_timestamp_seconds",
    "penstock_file_store_up",
    "penstock_fleet_config_differs",
    "penstock_fleet_journal_failing",
    "penstock_fleet_key_changes_age_seconds",
    "penstock_fleet_member_current",
}
METRIC = re.compile(r"\b((?:penstock|gen_ai|process)_\w+|up)\b(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
NEVER_A_METRIC = re.compile(r"\$__?\w+|\"[^\"]*\"")


def served():
    """Metric names with their labels, as the gateway tells them now."""
    with urllib.request.urlopen(f"{os.environ['PENSTOCK_ADMIN']}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    metrics = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
            metrics.setdefault(name, set()).update(re.findall(r"(\w+)=\"", labels or ""))
    return metrics


def asked(folder):
    """Every query with the place where it stands."""
    for file in sorted(folder.glob("grafana/*.json")):
        yield from ((file.name, query) for query in queries(json.loads(file.read_text())))
    for file in sorted(folder.glob("prometheus/*.y*ml")):
        # A query is what follows `expr:`, on the same line or, after `|`, on deeper ones.
        for match in re.finditer(r"^( *)(?:- )?expr: *(?:[|>]-?\n((?:\1 +.*\n)+)|(.*))", file.read_text(), re.M):
            yield file.name, match.group(2) or match.group(3)


def queries(value):
    if isinstance(value, dict):
        for name, one in value.items():
            if name in ("expr", "query", "definition") and isinstance(one, str):
                yield one
            else:
                yield from queries(one)
    elif isinstance(value, list):
        for one in value:
            yield from queries(one)


def wrong(query, metrics):
    """What the query names that is not there."""
    labels = {"le", "job", "instance"}
    used = set()
    for name, matchers in METRIC.findall(query):
        if name in metrics:
            labels |= metrics[name]
        elif name not in KNOWN and name not in {label for known in metrics.values() for label in known}:
            yield name
        used |= set(re.findall(r"(\w+)\s*[=!]", NEVER_A_METRIC.sub("", matchers or "")))
    for group in GROUPED.findall(query):
        used |= {label.strip() for label in group.split(",") if label.strip()}
    yield from sorted(used - labels)


def main(folder):
    metrics = served()
    passed = failed = 0
    for file, query in asked(pathlib.Path(folder)):
        missing = list(wrong(query, metrics))
        if missing:
            failed += 1
            print(f"not ok {file}: {query.strip()}\n  not there: {', '.join(missing)}")
        else:
            passed += 1
    print(f"# pass {passed}\n# fail {failed}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
