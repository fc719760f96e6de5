"""The manifests in deploy/kubernetes fit the schemas of Kubernetes, and the server that they start."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from dlstep.engine.config import EngineConfig
from dlstep.serve.http.guards import OPEN
from dlstep.serve.settings import ServeOptions

from .test_deploy import samples

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
VERSIONS = ("1.27", "1.37")  # the oldest that is meant to work, and the newest that has schemas here
MANIFESTS = list(yaml.safe_load_all((FOLDER / "dlstep.yaml").read_text()))
BY_KIND = {manifest["kind"]: manifest for manifest in MANIFESTS}
POD = BY_KIND["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_fit_the_schemas(version):
    for manifest in MANIFESTS:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_labels_names_and_ports_fit_each_other():
    labels = BY_KIND["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert BY_KIND["Deployment"]["spec"]["selector"]["matchLabels"] == labels == BY_KIND["Service"]["spec"]["selector"]
    assert BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert BY_KIND["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == BY_KIND["Deployment"]["metadata"]["name"]
    assert "replicas" not in BY_KIND["Deployment"]["spec"], "the autoscaler sets them; a value here would reset them"
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == ServeOptions().port and BY_KIND["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    annotations = BY_KIND["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ServeOptions().port) and annotations["prometheus.io/path"] in OPEN
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}


def test_options_are_those_of_the_server_and_it_may_drain():
    model, *arguments = CONTAINER["args"]
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert all(hasattr(ServeOptions(), name[2:]) or hasattr(EngineConfig("x"), name[2:]) for name in given)
    assert model in {mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert [variable["name"] for variable in CONTAINER["env"]] == ["DLSTEP_API_KEY"]
    pause = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] > float(given["--drain_seconds"]) + pause


def test_probes_ask_for_paths_that_need_no_key():
    probes = {name: CONTAINER[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    assert paths == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"} and set(paths.values()) <= set(OPEN)


def test_the_autoscaler_asks_for_the_metric_of_the_queue():
    (rule,) = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    assert rule["name"]["matches"] in samples() and rule["name"]["matches"] in rule["seriesQuery"]
    (metric,) = BY_KIND["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
