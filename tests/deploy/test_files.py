"""The files of `deploy/` name what the service has: versions, users, addresses, variables, limits and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import yaml
from jsonschema import Draft7Validator
from service_process import run_command

from service.config.config import Environment, ServiceConfig, load_config
from service.observe.metrics import Metrics

USER = 10001
PORT = 9464
FOLDERS = {"/data", "/etc/amplifier-slack", "/tmp"}  # noqa: S108 - in the container
CHART = "helm/amplifier-slack"


def chart(deploy, name):
    return (deploy / CHART / name).read_text()


def seconds(duration):
    return int(duration.removesuffix("s"))


def test_every_version_is_that_of_the_project(deploy, dockerfile, replicas, version):
    assert ["ARG", f"VERSION={version}"] in dockerfile
    assert {each["image"] for each in replicas} == {f"amplifier-slack:{version}"}
    about = yaml.safe_load(chart(deploy, "Chart.yaml"))
    assert {about["version"], about["appVersion"]} == {version}


def test_every_base_image_has_a_tag_and_a_digest(deploy):
    files = (deploy / "docker/Dockerfile").read_text(), (deploy / "compose/compose.redis.yaml").read_text()
    assert [len(re.findall(r"\b(?:python|redis):[\w.-]+@sha256:[0-9a-f]{64}\b", text)) for text in files] == [1, 1]


def test_the_service_has_the_same_user_everywhere(deploy, dockerfile, replicas):
    assert ["USER", f"{USER}:{USER}"] in dockerfile
    assert {each["user"] for each in replicas} == {f"{USER}:{USER}"}
    pod = chart(deploy, "templates/workload.yaml")
    assert set(re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", pod)) == {str(USER)}


def test_only_the_data_and_temporary_files_are_written(deploy, dockerfile, replicas):
    assert ["VOLUME", "/data"] in dockerfile
    assert set(re.findall(r"mountPath: ([\w/-]+)", chart(deploy, "templates/workload.yaml"))) == FOLDERS
    for service in replicas:
        mounts = [volume.split(":")[1:] for volume in service["volumes"]]
        assert mounts == [["/data"], ["/etc/amplifier-slack/config.yaml", "ro"]]
        assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]  # noqa: S108


def test_no_container_has_more_rights_than_its_user_and_redis_keeps_its_data(containers):
    assert containers.keys() == {"amplifier-slack", "one", "two", "redis"}
    for service in containers.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"--appendonly", "noeviction"} <= set(containers["redis"]["command"])


def test_every_variable_is_one_of_the_service(deploy):
    named = {
        name
        for path in deploy.rglob("*")
        if path.is_file() and "play" not in path.parts
        for name in re.findall(r"\b(?:SLACK|ANTHROPIC|AMPLIFIER)_[A-Z_]+\b", path.read_text())
    }
    known = {name.upper() for name in Environment.model_fields} | {"AMPLIFIER_SLACK_DATA"}
    assert named - known == set()


def test_the_autoscaler_reads_a_metric_of_the_service(deploy):
    (name,) = re.findall(r"metric: {name: (\w+)}", chart(deploy, "templates/availability.yaml"))
    assert name in {metric.name for metric in Metrics(["alpha"]).registry.collect()}


def test_the_page_names_files_that_exist(deploy):
    named = re.findall(r"\bdeploy/[\w./-]*\w", (deploy.parent / "docs" / "deployment.md").read_text())
    assert named
    assert [path for path in named if not (deploy.parent / path).exists() and path != "deploy/tokens.env"] == []


@pytest.mark.parametrize("folder", ["/var/lib/amplifier-slack", "/data"])
def test_the_configuration_keeps_everything_in_one_folder(deploy, monkeypatch, folder):
    monkeypatch.setenv("AMPLIFIER_SLACK_DATA", "" if folder.startswith("/var") else folder)
    config = load_config(deploy / "config.yaml")
    assert config.store.get_secret_value() == f"sqlite:{folder}/conversations.db"
    assert str(config.workspace.root) == f"{folder}/workspaces"


def test_supervisors_wait_longer_than_a_shutdown_takes(deploy, replicas, unit):
    longest = max(load_config(deploy / "config.yaml").shutdown_grace_s, ServiceConfig().shutdown_grace_s)
    assert all(seconds(each["stop_grace_period"]) > longest + 2 for each in replicas)
    assert seconds(unit["TimeoutStopSec"]) > longest + 2


async def test_systemd_does_not_restart_after_a_configuration_error(unit, tmp_path):
    ended = await run_command("run", "--config", str(tmp_path / "missing.yaml"))
    assert unit["Restart"] == "on-failure"
    assert unit["RestartPreventExitStatus"] == str(ended.code)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_of_the_image_asks_the_service(dockerfile, status, code):
    assert ["EXPOSE", str(PORT)] in dockerfile
    (arguments,) = [arguments for keyword, arguments in dockerfile if keyword == "HEALTHCHECK"]
    program, *words = json.loads(arguments[arguments.index("[") :])
    assert program == "python"

    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        Thread(target=server.handle_request).start()
        variables = {"AMPLIFIER_SLACK_OBSERVE": f"0.0.0.0:{server.server_port}", "http_proxy": "http://127.0.0.1:1"}
        checked = subprocess.run([sys.executable, *words], env=variables, check=False)  # noqa: S603
    assert checked.returncode == code


def test_the_build_gets_all_that_it_installs_and_no_secret(deploy):
    ignored = (deploy.parent / ".dockerignore").read_text().split("\n")
    wheel = tomllib.loads((deploy.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert {*wheel.get("only-include", wheel.get("packages")), "requirements-image.lock", "deploy/config.yaml"} <= sent
    assert not [path for path in sent if "token" in path or "env" in path]


def test_the_values_of_the_chart_follow_its_schema(deploy):
    schema = json.loads(chart(deploy, "values.schema.json"))
    values = yaml.safe_load(chart(deploy, "values.yaml"))
    Draft7Validator.check_schema(schema)
    assert list(Draft7Validator(schema).iter_errors(values)) == []
    assert values.keys() == schema["properties"].keys() - {"global"}


@pytest.mark.parametrize(
    "command", ["hadolint docker/Dockerfile", "shellcheck systemd/install.sh setup.sh", f"helm lint --strict {CHART}"]
)
def test_a_linter_finds_nothing(deploy, tool, command):
    name, *words = command.split()
    ran = tool(name, *(deploy / word if (deploy / word).exists() else word for word in words))
    assert ran.returncode == 0, ran.stdout + ran.stderr
