"""The Kubernetes example: every object has the fields and values that its kind takes, and no other.

It was not applied to a cluster. What can be known without one is held here: the shape of each
object, names that fit together, commands that there are, and no secret in it.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.test_documented_commands import problem

from roquet.model.settings import parse_millis

PATH = Path(__file__).parents[2] / "examples" / "kubernetes" / "archive.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(PATH.read_text("utf-8")))

LABELS = {"app": str, "topic": str}
SECRET = {"name": str, "valueFrom": {"secretKeyRef": {"name": str, "key": str}}}
PLAIN = {"name": str, "value": str}
QUANTITIES = {"cpu": str, "memory": str}

CONTAINER = {
    "name": str,
    "image": str,
    "command": [str],
    "args": [str],
    "envFrom": [{"configMapRef": {"name": str}}],
    "env": [(SECRET, PLAIN)],
    "resources": {"requests": QUANTITIES, "limits": QUANTITIES},
    "securityContext": {
        "runAsNonRoot": bool,
        "runAsUser": int,
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
    },
    "volumeMounts": [{"name": str, "mountPath": str}],
}

POD = {
    "automountServiceAccountToken": bool,
    "terminationGracePeriodSeconds": int,
    "containers": [CONTAINER],
    "volumes": [{"name": str, "emptyDir": dict}],
}

SHAPES: Mapping[str, Any] = {
    "ConfigMap": {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": str},
        "data": {"NAMESRV_ADDR": str, "AWS_REGION": str},
    },
    "CronJob": {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": str, "labels": LABELS},
        "spec": {
            "schedule": str,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": int,
            "successfulJobsHistoryLimit": int,
            "failedJobsHistoryLimit": int,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": int,
                    "activeDeadlineSeconds": int,
                    "template": {
                        "metadata": {"labels": LABELS},
                        "spec": {"restartPolicy": "Never", **POD},
                    },
                }
            },
        },
    },
    "Deployment": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": str, "labels": LABELS},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": POD},
        },
    },
}
"""The fields of each kind: a type, a value that it has to have, a list of equals, or a choice."""


def faults(value: Any, shape: Any, place: str = "") -> Iterator[str]:
    """Where a value has another form than its shape."""
    if isinstance(shape, dict) and isinstance(value, dict) and value.keys() == shape.keys():
        for name, part in shape.items():
            yield from faults(value[name], part, f"{place}.{name}")
    elif isinstance(shape, list) and isinstance(value, list) and value:
        for number, part in enumerate(value):
            yield from faults(part, shape[0], f"{place}[{number}]")
    elif not is_plain_fit(value, shape):
        yield f"{place}: {value!r}"


def is_plain_fit(value: Any, shape: Any) -> bool:
    """Whether a value has a type, is the one it has to be, or fits one of several shapes."""
    if isinstance(shape, tuple):
        return any(not [*faults(value, part)] for part in shape)
    return type(value) is shape if isinstance(shape, type) else bool(value == shape)


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Labels and specification of each pod."""
    for each in OBJECTS:
        spec = each.get("spec", {})
        template = spec.get("jobTemplate", each).get("spec", {}).get("template")
        if template:
            yield template["metadata"]["labels"], template["spec"]


PODS = list(pods())


def test_there_is_an_archive_by_the_clock_and_one_without_an_end() -> None:
    assert [each["kind"] for each in OBJECTS] == ["ConfigMap", "CronJob", "Deployment"]
    assert len(PODS) == 2


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda each: str(each["kind"]))
def test_every_field_is_one_of_its_kind_and_has_its_type(thing: dict[str, Any]) -> None:
    assert [*faults(thing, SHAPES[thing["kind"]])] == []


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({"a": 1, "b": 2}, {"a": int}),
        ({}, {"a": int}),
        ([], [str]),
        (["a", 1], [str]),
        ("Allow", "Forbid"),
        (True, int),
        ({"c": 1}, ({"a": int}, {"b": int})),
    ],
)
def test_another_form_is_a_fault(value: Any, shape: Any) -> None:
    assert [*faults(value, shape)] != []


@pytest.mark.parametrize(("labels", "spec"), PODS)
def test_the_command_is_one_that_there_is(labels: dict[str, str], spec: dict[str, Any]) -> None:
    (container,) = spec["containers"]
    words = [*container["command"], *container["args"]]
    assert problem(shlex.join(words)) is None
    assert words[:3] == ["roquet", "spark", "archive"]
    assert words[3] == labels["topic"]
    assert words[4] == f"s3://lake/{labels['topic']}"
    if "--every" in words:
        assert parse_millis(words[words.index("--every") + 1], "--every") == 30_000


def test_labels_and_names_fit_together() -> None:
    config, cron_job, deployment = OBJECTS
    assert deployment["spec"]["selector"]["matchLabels"] == PODS[1][0]
    assert cron_job["metadata"]["labels"] == PODS[0][0]
    assert PODS[0][0] != PODS[1][0], "a Deployment owns every pod that its selector fits"
    for _, spec in PODS:
        (container,) = spec["containers"]
        (volume,) = spec["volumes"]
        assert container["envFrom"] == [{"configMapRef": {"name": config["metadata"]["name"]}}]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"]}


def test_credentials_come_from_a_secret_that_the_head_says_how_to_make() -> None:
    text = PATH.read_text("utf-8")
    for _, spec in PODS:
        (container,) = spec["containers"]
        wanted = {
            each["name"]: each["valueFrom"]["secretKeyRef"]
            for each in container["env"]
            if "valueFrom" in each
        }
        assert wanted.keys() == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
        for reference in wanted.values():
            assert f"create secret generic {reference['name']} " in text
            assert f"--from-literal={reference['key']}=" in text
    assert not OBJECTS[0]["data"].keys() & {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def test_a_schedule_has_five_fields_and_names_are_dns_labels() -> None:
    assert len(OBJECTS[1]["spec"]["schedule"].split()) == 5
    for each in OBJECTS:
        assert each["metadata"]["name"].replace("-", "").isalnum()
        assert each["metadata"]["name"].islower()
