"""The dashboard for Grafana and the alerts for Prometheus: their queries ask for metrics and labels that a server has,
and the panels are in order. No Grafana shows them here."""

import json
import re
from pathlib import Path

import prometheus_client.parser
import promql_parser
import pytest
import yaml

from conftest import openai_client
from test_metrics import fetch

FILE = Path(__file__).parents[2] / "docs" / "grafana.json"
DASHBOARD = json.loads(FILE.read_text())
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]

RULES = Path(__file__).parents[2] / "packaging" / "prometheus" / "corelane.rules.yml"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]

TARGET = {"job", "instance"}  # labels that Prometheus adds to each sample
BUILT_IN = {"$__rate_interval": "1m", "$__range": "1h"}  # variables that Grafana sets


def parsed(query):
    """A query with a duration for each variable of Grafana; our own variables stand in strings, and stay."""
    for name, duration in BUILT_IN.items():
        query = query.replace(name, duration)
    return promql_parser.parse(query)


def nodes(expression):
    found = []
    promql_parser.walk(expression, pre_visit=found.append)
    return found


def selectors(expression):
    return [node for node in nodes(expression) if isinstance(node, promql_parser.VectorSelector)]


def demanded(node):
    """The labels that a node of a query groups by or joins on."""
    if isinstance(node, promql_parser.AggregateExpr) and node.modifier:
        return set(node.modifier.labels)
    if isinstance(node, promql_parser.BinaryExpr) and node.modifier:
        matching = node.modifier.matching
        return set(matching.labels if matching else []) | set(node.modifier.group_labels or [])
    return set()


def alternatives(matcher):
    """The values that a matcher names: `a|b` are two."""
    regex = matcher.op in (promql_parser.MatchOp.Re, promql_parser.MatchOp.NotRe)
    return matcher.value.split("|") if regex else [matcher.value]


def mistakes(query, series):
    """The metrics, labels and values of labels in a query that the server does not have."""
    expression = parsed(query)
    for selector in selectors(expression):
        known = series.get(selector.name)
        if known is None:
            yield f"no metric {selector.name}"
            continue
        for matcher in selector.matchers.matchers:
            if matcher.name in TARGET:
                continue
            values = {labels.get(matcher.name) for labels in known}
            for value in alternatives(matcher):
                if value not in values:
                    yield f"no {matcher.name}={value} in {selector.name}"
    for node in nodes(expression):
        below = {selector.name for selector in selectors(node)}
        there = set().union(*(labels for name in below for labels in series.get(name, [])))
        for label in demanded(node) - there - TARGET:
            yield f"no label {label} in {' or '.join(sorted(below))}"


def unfiltered(query):
    """The metrics that a query asks for without the chosen job and instances."""
    want = {'job="$job"', 'instance=~"$instance"'}
    return [s.name for s in selectors(parsed(query)) if not want <= {str(m) for m in s.matchers.matchers}]


def lost(query, legend):
    """The labels that a legend shows and the query's result does not have."""
    found = nodes(parsed(query))
    sums = [node for node in found if isinstance(node, promql_parser.AggregateExpr)]
    kept = (set() if sums else TARGET).union(*map(demanded, sums or found))
    return set(re.findall(r"{{(\w+)}}", legend)) - kept


def cells(panel):
    place = panel["gridPos"]
    columns = range(place["x"], place["x"] + place["w"])
    return {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}


def overlaps(panels):
    """The ids of panels that cover a cell of an earlier panel."""
    taken, found = set(), []
    for panel in panels:
        if taken & cells(panel):
            found.append(panel["id"])
        taken |= cells(panel)
    return found


@pytest.fixture(scope="module")
def series(server, metrics):
    """The labels of each series, by metric, of a server that has served a request."""
    openai_client(server).completions.create(model="any", prompt="Once upon a time", max_tokens=5)
    found = {"up": [{}]}  # Prometheus makes it for each target
    for family in prometheus_client.parser.text_string_to_metric_families(fetch(metrics)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


@pytest.mark.parametrize("query", QUERIES + [alert["expr"] for alert in ALERTS])
def test_a_query_asks_for_what_the_server_has(query, series):
    assert list(mistakes(query, series)) == []


@pytest.mark.parametrize(
    ("query", "mistake"),
    [
        ("rate(vllm:generation_token_total[1m])", "no metric vllm:generation_token_total"),
        ("corelane_ready or corelane_redy", "no metric corelane_redy"),
        ('corelane_allocations_total{lain="front"}', "no lain=front in corelane_allocations_total"),
        (
            'corelane_requests_refused_total{reason=~"failed|queue_ful"}',
            "no reason=queue_ful in corelane_requests_refused_total",
        ),
        ("sum by (lain) (corelane_allocations_total)", "no label lain in corelane_allocations_total"),
        (
            "corelane_ready * on (job) group_left (kernel) corelane_build_info",
            "no label kernel in corelane_build_info or corelane_ready",
        ),
    ],
)
def test_a_misspelt_name_is_found(query, mistake, series):
    assert list(mistakes(query, series)) == [mistake]


def test_a_query_that_cannot_be_parsed_is_found():
    with pytest.raises(ValueError):
        parsed("sum(rate(corelane_ready[1m])")


def test_every_query_asks_for_the_chosen_servers():
    assert [name for query in QUERIES for name in unfiltered(query)] == []
    one_of_two = 'corelane_ready{job="$job",instance=~"$instance"} or up{job="$job"}'
    assert unfiltered(one_of_two) == ["up"]


def test_variables_are_defined_and_ask_for_what_the_server_has(series):
    queries = [variable["query"] for variable in VARIABLES.values()]
    used = set(re.findall(r"\$\{?\w+", json.dumps([PANELS, queries]))) - BUILT_IN.keys()
    assert {name.lstrip("${") for name in used} == VARIABLES.keys()
    for name in TARGET:
        query = VARIABLES[name]["query"]["query"]
        assert VARIABLES[name]["definition"] == query  # the list of variables shows this
        asked, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
        assert (label, list(mistakes(asked, series))) == (name, [])
    assert VARIABLES["instance"]["multi"] and VARIABLES["instance"]["includeAll"]


def test_an_alert_says_how_bad_it_is_and_what_to_do():
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS) > 5
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("warning", "critical"), alert
        assert "$labels.instance" in alert["annotations"]["summary"], alert
        assert alert["annotations"]["description"].endswith("."), alert


def test_the_import_asks_for_the_data_source():
    [asked] = DASHBOARD["__inputs"]
    assert VARIABLES["datasource"]["current"]["value"] == f"${{{asked['name']}}}"
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}


def test_a_legend_names_labels_of_its_query():
    for panel in PANELS:
        for target in panel["targets"]:
            assert lost(target["expr"], target["legendFormat"]) == set(), panel["title"]
    assert lost("sum by (lane) (corelane_allocations_total)", "{{lane}} {{instance}}") == {"instance"}


def test_panels_have_a_place_an_id_a_title_and_a_description_of_their_own():
    panels = DASHBOARD["panels"]
    assert overlaps(panels) == []
    assert max(x for panel in panels for x, _ in cells(panel)) < 24
    for field, of in [("id", panels), ("title", panels), ("description", PANELS)]:
        values = [panel[field] for panel in of]
        assert all(values) and len(set(values)) == len(values), field


def test_panels_that_overlap_are_found():
    first, second = PANELS[:2]
    assert overlaps([first, second | {"gridPos": first["gridPos"]}]) == [second["id"]]


def test_overrides_name_a_legend_of_their_panel():
    for panel in PANELS:
        legends = {target["legendFormat"] for target in panel["targets"]}
        for override in panel["fieldConfig"]["overrides"]:
            assert override["matcher"]["options"] in legends, panel["title"]


def test_the_file_is_formatted_as_json_writes_it():
    """So that a change shows as a small diff."""
    assert FILE.read_text() == json.dumps(DASHBOARD, indent=2, ensure_ascii=False) + "\n"
