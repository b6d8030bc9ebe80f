"""The manifests for Kubernetes: right by the schemas of Kubernetes, and consistent among themselves and with
the program. PodMonitor, InferencePool and HTTPRoute are not a part of Kubernetes: of these, only the references
are checked."""

import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from conftest import BINARY

MANIFESTS = Path(__file__).parents[2] / "packaging" / "kubernetes"
OBJECTS = {
    found["kind"]: found
    for path in MANIFESTS.glob("*.yaml")
    for found in yaml.safe_load_all(path.read_text())
}
CONTAINER = OBJECTS["Deployment"]["spec"]["template"]["spec"]["containers"][0]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}


# The oldest version has the first release in which `preStop.sleep` is on by default.
@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"])
def test_an_object_is_right_by_the_schema_of_kubernetes(kind, version):
    kubernetes_validate.validate(OBJECTS[kind], version, strict=True)


def test_a_misspelt_field_is_found():
    service = OBJECTS["Service"]
    wrong = service | {"spec": service["spec"] | {"selectr": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def test_objects_refer_to_labels_and_ports_of_the_pod():
    labels = OBJECTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert OBJECTS["Service"]["spec"]["selector"] == labels
    for kind in ["Deployment", "PodDisruptionBudget", "PodMonitor", "InferencePool"]:
        assert OBJECTS[kind]["spec"]["selector"]["matchLabels"] == labels, kind
    policy = OBJECTS["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    picker = {"podSelector": {"matchLabels": {"app": OBJECTS["InferencePool"]["spec"]["endpointPickerRef"]["name"]}}}
    assert any(picker in rule["from"] and {"port": "ops"} in rule["ports"] for rule in policy["ingress"])
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(PORTS)
    assert OBJECTS["Service"]["spec"]["ports"][0]["targetPort"] in PORTS
    assert OBJECTS["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["port"] in PORTS
    assert OBJECTS["InferencePool"]["spec"]["targetPorts"] == [{"number": PORTS["http"]}]
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"]:
        assert CONTAINER[probe]["httpGet"]["port"] in PORTS, probe
    backend = OBJECTS["HTTPRoute"]["spec"]["rules"][0]["backendRefs"][0]
    assert backend == {
        "group": OBJECTS["InferencePool"]["apiVersion"].split("/")[0],
        "kind": "InferencePool",
        "name": OBJECTS["InferencePool"]["metadata"]["name"],
    }


def test_the_program_knows_the_flags_and_variables_of_the_pod():
    shown = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    flags = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", shown))
    used = [argument.split("=")[0] for argument in CONTAINER["args"] if argument.startswith("-")]
    assert used and set(used) <= flags
    for variable in CONTAINER["env"]:
        assert variable["name"] in shown
    assert f":{PORTS['ops']}" in next(argument for argument in CONTAINER["args"] if "--ops-addr" in argument)
    grace = OBJECTS["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    stop = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = int(re.search(r"--drain-seconds .*?\[default: (\d+)\]", shown, re.S)[1])
    assert grace > stop + drain


def test_the_pod_may_read_its_keys_and_meets_no_variable_of_its_service():
    pod = OBJECTS["Deployment"]["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False
    user = pod["securityContext"]
    secret = next(volume["secret"] for volume in pod["volumes"] if volume["name"] == "keys")
    # The kubelet gives the file to root and to fsGroup.
    assert secret["defaultMode"] == 0o440 and user["fsGroup"] == user["runAsGroup"] == user["runAsUser"]
