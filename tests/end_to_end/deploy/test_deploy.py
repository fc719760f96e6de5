"""The files in deploy/ parse, and name metrics, options and files that there are."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from dlstep.engine.config import EngineConfig
from dlstep.serve.http.guards import OPEN
from dlstep.serve.router.metrics import Metrics
from dlstep.serve.settings import ServeOptions

FOLDER = Path(__file__).parents[3] / "deploy"
PROMQL = {"histogram_quantile", "sum", "by", "rate", "le", "kind", "finished_reason"}


def samples():
    """The names of all time series of `/metrics`; a metric with labels has none before it is used."""
    found = re.findall(r"^# TYPE (\S+) (\w+)", Metrics((), ()).text().decode(), re.MULTILINE)
    return {f"{name}{end}" for name, kind in found for end in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}


def test_every_panel_asks_for_metrics_that_there_are():
    board = json.loads((FOLDER / "grafana" / "dlstep.json").read_text())
    known, asked = samples(), set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = re.sub(r"\[\w+\]", "", target["expr"])
            assert expression.count("(") == expression.count(")")
            asked |= set(re.findall(r"[a-z_][\w:]*", expression)) - PROMQL
    assert asked and asked <= known, asked - known
    own = {
        name for name in known if name.startswith(("dlstep_", "vllm:")) and not name.endswith(("_created", "_sum", "_count"))
    }
    assert own - asked <= {"vllm:kv_cache_usage_perc"}, "the dashboard shows everything; pages say the same as their share"


def test_compose_mounts_files_that_there_are():
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert set(services) == {"dlstep", "prometheus", "grafana"}
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    assert len(mounted) == 4 and all((FOLDER / path).is_file() for path in mounted)
    build = services["dlstep"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).is_file()
    assert set(services["dlstep"]["environment"]) == {"DLSTEP_API_KEY"}
    assert int(services["dlstep"]["stop_grace_period"].removesuffix("s")) > ServeOptions().drain_seconds
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["metrics_path"] in OPEN
    assert scraped["static_configs"][0]["targets"] == [f"dlstep:{ServeOptions().port}"]
    assert services["dlstep"]["init"] and services["dlstep"]["restart"] == "unless-stopped", "a hung server is started again"
    source = yaml.safe_load((FOLDER / "grafana" / "datasource.yml").read_text())["datasources"][0]
    assert source["uid"] in (FOLDER / "grafana" / "dlstep.json").read_text()
    provided = yaml.safe_load((FOLDER / "grafana" / "dashboards.yml").read_text())["providers"][0]["options"]["path"]
    assert any(provided in volume for volume in services["grafana"]["volumes"])


def test_the_proxy_shows_no_metrics():
    assert "\n        location /metrics { return 404; }" in (FOLDER / "nginx.conf").read_text()


def test_compose_for_gpus_changes_the_server_alone():
    (service,) = yaml.safe_load((FOLDER / "compose.gpu.yaml").read_text())["services"].values()
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]} and service["shm_size"].endswith("gb")
    model, *arguments = service["command"]
    assert f":{model}:ro" in service["volumes"][0] and hasattr(EngineConfig("x"), arguments[0].removeprefix("--"))


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.cuda"])
def test_an_image_copies_what_there_is_and_starts_the_server(name):
    lines = [line for line in (FOLDER / name).read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("ARG BASE=python:3.") and lines[1] == "FROM $BASE"
    for line in lines:
        if line.startswith("COPY "):
            assert all((FOLDER.parent / source).exists() for source in line.split()[1:-1])
    command = json.loads(lines[-1].removeprefix("ENTRYPOINT "))
    assert command[:2] == ["dlstep", "serve"]
    options = {field.name for owner in (ServeOptions, EngineConfig) for field in fields(owner)}
    assert {word.removeprefix("--") for word in command if word.startswith("--")} <= options
    pinned = re.search(r"^torch==(\S+)", (FOLDER.parent / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned and any(f"torch=={pinned[1]}" in line for line in lines)
    pod = next(yaml.safe_load_all((FOLDER / "kubernetes" / "dlstep.yaml").read_text()))["spec"]["template"]["spec"]
    assert f"USER {pod['securityContext']['runAsUser']}" in lines and "USER 0" not in lines, "the server needs no root"
