"""The page of metrics, read by Prometheus' own Python client."""

import urllib.request

import prometheus_client.openmetrics.parser
import prometheus_client.parser


def fetch(url):
    with urllib.request.urlopen(url) as response:
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        return response.read().decode()


def families(url):
    parse = prometheus_client.openmetrics.parser.text_string_to_metric_families
    return {family.name: family for family in parse(fetch(url))}


def value(family, suffix="", **labels):
    [sample] = [
        sample
        for sample in family.samples
        if sample.name == family.name + suffix and labels.items() <= sample.labels.items()
    ]
    return sample.value


def test_counts_follow_what_was_done(client, metrics):
    before = families(metrics)
    usage = client.completions.create(
        model="any", prompt="Once upon a time", max_tokens=20, extra_body={"ignore_eos": True}
    ).usage
    after = families(metrics)

    def grown(name, suffix, **labels):
        return value(after[name], suffix, **labels) - value(before[name], suffix, **labels)

    assert grown("vllm:prompt_tokens", "_total") == usage.prompt_tokens
    assert grown("vllm:generation_tokens", "_total") == usage.completion_tokens == 20
    assert grown("vllm:request_success", "_total", finished_reason="length") == 1
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
        assert grown(f"vllm:{name}_seconds", "_count") == 1
    assert grown("vllm:inter_token_latency_seconds", "_count") == 19
    assert grown("corelane_bubble_seconds", "_count") >= 20
    assert grown("corelane_allocations", "_total", lane="decode") == 0
    assert value(after["corelane_ready"]) == 1


def test_gateways_that_read_the_classic_format_find_the_names(metrics):
    """Those do not know OpenMetrics, and read the lines they know."""
    parse = prometheus_client.parser.text_string_to_metric_families
    samples = {sample.name for family in parse(fetch(metrics)) for sample in family.samples}
    assert {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:generation_tokens_total",
        "vllm:time_to_first_token_seconds_bucket",
    } <= samples
