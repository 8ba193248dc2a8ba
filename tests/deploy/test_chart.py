"""The chart renders what its values say, and refuses values that contradict each other. It needs `helm`."""

from __future__ import annotations

import pytest
import yaml

REDIS = ("--set", "store=redis,replicas=2,persistence.accessMode=ReadWriteMany")
CONFIG = """
instances:
  zeta: {persona: {name: Zeta, emoji: ":owl:"}}
  alpha: {persona: {name: Alpha, emoji: ":owl:"}}
slack: {transport: http, listen: "0.0.0.0:3000"}
shutdown_grace_s: 40
"""


def rendered(template, *options):
    ran = template(*options)
    assert ran.returncode == 0, ran.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(ran.stdout) if each}


def test_a_store_of_one_process_has_one_pod_that_ends_before_the_next_begins(template):
    documents = rendered(template)
    assert documents["StatefulSet"]["spec"]["replicas"] == 1
    assert "Deployment" not in documents
    assert "ConfigMap" not in documents


def test_several_replicas_share_redis_and_scale_with_their_runs(template, tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    documents = rendered(
        template, *REDIS, "--set-file", f"config={tmp_path}/config.yaml", "--set", "autoscaling.enabled=true"
    )
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    (metric,) = documents["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == "amplifier_slack_runs_active"
    assert "replicas" not in documents["Deployment"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 42
    assert [port["containerPort"] for port in pod["containers"][0]["ports"]] == [9464, 3000]
    assert [rule["ports"][0]["port"] for rule in documents["NetworkPolicy"]["spec"]["ingress"]] == ["observe", "events"]
    assert documents["ConfigMap"]["data"]["config.yaml"].strip() == CONFIG.strip()  # the first instance is the default


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("replicas=2", "an SQLite store has one replica"),
        ("autoscaling.enabled=true", "an SQLite store has one replica"),
        ("store=redis,replicas=2", "ReadWriteMany"),
        ("store=redis,persistence.existingClaim=c,autoscaling.enabled=true,autoscaling.minReplicas=9", "lower it"),
        ("terminationGracePeriodSeconds=12", "greater than shutdown_grace_s"),
        ("secret.create=true", "secret.values.SLACK_BOT_TOKEN is missing"),
        ("secret.values.SLACK_BOT_TOKEN=x", "secret.create is off"),
        ("config=workspace: {root: work}", "only /data is kept"),
        ("config=slack: {transport: http}", "0.0.0.0:3000"),
        ("config=a: ]", "not valid YAML"),
        ("store=postgres", "sqlite"),
        ("replica=2", "not allowed"),
    ],
)
def test_contradictory_values_are_refused_with_a_sentence(template, values, words):
    ran = template("--set", values)
    assert ran.returncode != 0
    assert words in ran.stderr
