"""Traces: the spans that a server sends to an OpenTelemetry collector, read with OpenTelemetry's own schema."""

import base64
import contextlib
import http.server
import json
import queue
import threading
import time

import openai
import prometheus_client.parser
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from conftest import MODEL, address, metrics_address, openai_client, running
from test_metrics import fetch

TRACER = TracerProvider().get_tracer("test")


class Collector:
    """A collector on a free port. It takes batches after `delay` seconds, and puts their spans into a queue."""

    def __init__(self, delay=0.0, status=200, answer="{}"):
        self.delay, self.status, self.answer = delay, status, answer
        self.spans, self.headers = queue.Queue(), []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/json")
                outer.headers.append(dict(self.headers))
                time.sleep(outer.delay)
                for span in spans_of(body):
                    outer.spans.put(span)
                with contextlib.suppress(ConnectionError):  # the server may have given up
                    self.send_response(outer.status)
                    self.send_header("location", "/elsewhere")
                    self.send_header("content-length", str(len(outer.answer)))
                    self.end_headers()
                    self.wfile.write(outer.answer.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def next(self):
        return self.spans.get(timeout=20)


def spans_of(body):
    """The spans in an export, by OpenTelemetry's schema: an unknown field or a wrong type is an error."""

    def encoded(value):
        """OTLP writes ids in hexadecimal digits, where protobuf's own JSON has base64."""
        if isinstance(value, dict):
            return {
                name: base64.b64encode(bytes.fromhex(inner)).decode() if name.endswith(("traceId", "panId")) else encoded(inner)
                for name, inner in value.items()
            }
        return [encoded(inner) for inner in value] if isinstance(value, list) else value

    export = ParseDict(encoded(json.loads(body)), ExportTraceServiceRequest())
    for resource in export.resource_spans:
        assert attributes(resource.resource)["service.name"] == "corelane"
        for scope in resource.scope_spans:
            yield from scope.spans


def attributes(holder):
    def value(found):
        kind = found.WhichOneof("value")
        if kind == "array_value":
            return [value(inner) for inner in found.array_value.values]
        return getattr(found, kind)

    return {attribute.key: value(attribute.value) for attribute in holder.attributes}


def counted(metrics):
    """The spans by outcome."""
    families = prometheus_client.parser.text_string_to_metric_families(fetch(metrics))
    samples = [sample for family in families for sample in family.samples]
    return {s.labels["outcome"]: s.value for s in samples if s.name == "corelane_spans_total"}


@pytest.fixture(scope="module")
def collector():
    found = Collector()
    yield found
    found.close()


@pytest.fixture(scope="module")
def traced(collector):
    flags = [f"--otlp-endpoint={collector.url}", "--otlp-headers=x-team=7,authorization=Bearer abc"]
    with running(*flags) as banner:
        yield banner


def chat(server, **options):
    return openai_client(server).chat.completions.create(
        model="any", messages=[{"role": "user", "content": "What is 3 plus 4?"}], **options
    )


def test_a_request_is_a_span_of_the_clients_trace(traced, collector):
    carrier = {}
    began = time.time_ns()
    with TRACER.start_as_current_span("client") as client_span:
        TraceContextTextMapPropagator().inject(carrier)
        answer = chat(address(traced), max_tokens=7, temperature=0.5, extra_headers=carrier)
    span = collector.next()
    client = client_span.get_span_context()
    assert (span.trace_id, span.parent_span_id) == (
        client.trace_id.to_bytes(16, "big"),
        client.span_id.to_bytes(8, "big"),
    )
    assert any(span.span_id) and span.span_id != span.parent_span_id
    assert (span.name, span.kind) == (f"chat {MODEL}", Span.SPAN_KIND_SERVER)
    assert span.status.code == Status.STATUS_CODE_UNSET

    found = attributes(span)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL,
        "gen_ai.response.id": answer.id,
        "gen_ai.response.finish_reasons": [answer.choices[0].finish_reason],
        "gen_ai.request.max_tokens": 7,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.usage.input_tokens": answer.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": answer.usage.completion_tokens,
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
    }
    assert found.items() >= expected.items()
    assert 0 < found["gen_ai.latency.time_to_first_token"] < found["gen_ai.latency.e2e"] < 60

    times = [began, span.start_time_unix_nano, *(event.time_unix_nano for event in span.events)]
    times += [span.end_time_unix_nano, time.time_ns()]
    assert [event.name for event in span.events] == ["queue", "prefill", "decode"]
    assert times == sorted(times)


def test_headers_for_the_collector_are_sent(traced, collector):
    chat(address(traced), max_tokens=1)
    collector.next()
    headers = {name.lower(): value for name, value in collector.headers[-1].items()}
    assert (headers["x-team"], headers["authorization"]) == ("7", "Bearer abc")


def test_requests_without_a_trace_begin_their_own(traced, collector):
    for _ in range(2):
        chat(address(traced), max_tokens=1)
    first, second = collector.next(), collector.next()
    assert first.trace_id != second.trace_id and any(first.trace_id)
    assert not first.parent_span_id


def test_a_trace_that_the_client_does_not_record_has_no_span(traced, collector):
    silent = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
    chat(address(traced), max_tokens=1, extra_headers=silent)
    chat(address(traced), max_tokens=2)
    assert attributes(collector.next())["gen_ai.request.max_tokens"] == 2


def test_a_refused_request_is_a_span_too(traced, collector):
    with pytest.raises(openai.BadRequestError):
        chat(address(traced), temperature=-1)
    span = collector.next()
    found = attributes(span)
    assert (found["http.response.status_code"], found["error.type"]) == (400, "400")
    assert "gen_ai.usage.input_tokens" not in found and not span.events
    assert span.status.code == Status.STATUS_CODE_UNSET, "a client's fault is no error of the server"


def test_a_client_that_leaves_ends_its_span(traced, collector):
    stream = chat(address(traced), max_tokens=900, stream=True, extra_body={"ignore_eos": True})
    next(stream)
    stream.close()
    found = attributes(collector.next())
    assert found["error.type"] == "client_left"
    assert found["gen_ai.usage.output_tokens"] < 900


def test_spans_come_with_the_end_of_the_server(collector):
    with running(f"--otlp-endpoint={collector.url}") as banner:
        chat(address(banner), max_tokens=3)
    assert attributes(collector.next())["gen_ai.request.max_tokens"] == 3


def test_a_slow_or_failing_collector_delays_nobody_and_is_counted():
    slow = Collector(delay=1.5, status=503)
    with running(f"--otlp-endpoint={slow.url}") as banner:
        began = time.monotonic()
        for _ in range(20):
            chat(address(banner), max_tokens=1)
        assert time.monotonic() - began < 1.5 * 20 / 4, "requests do not wait for the collector"
        deadline = time.monotonic() + 20
        while counted(metrics_address(banner))["failed"] < 20:
            assert time.monotonic() < deadline, counted(metrics_address(banner))
            time.sleep(0.1)
        assert counted(metrics_address(banner)) == {"sent": 0, "failed": 20, "dropped": 0}
    slow.close()


@pytest.mark.parametrize(("status", "answer"), [(302, "{}"), (200, '{"partialSuccess":{"rejectedSpans":"1"}}')])
def test_spans_that_were_not_taken_count_as_failed(status, answer):
    choosy = Collector(status=status, answer=answer)
    with running(f"--otlp-endpoint={choosy.url}") as banner:
        chat(address(banner), max_tokens=1)
        choosy.next()
        deadline = time.monotonic() + 20
        while counted(metrics_address(banner))["failed"] < 1:
            assert time.monotonic() < deadline, counted(metrics_address(banner))
            time.sleep(0.1)
        assert counted(metrics_address(banner)) == {"sent": 0, "failed": 1, "dropped": 0}
    choosy.close()


def test_a_collector_that_is_gone_costs_no_request():
    gone = Collector()
    gone.close()
    with running(f"--otlp-endpoint={gone.url}") as banner:
        assert chat(address(banner), max_tokens=1).choices
        deadline = time.monotonic() + 20
        while counted(metrics_address(banner))["failed"] < 1:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert chat(address(banner), max_tokens=1).choices
