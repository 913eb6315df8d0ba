"""The role `ontap` against a cluster on loopback: two runs, check mode, refusals, and the removal."""

import pytest

from tests.deployment.ontap.conftest import TRIDENT_PASSWORD, Run
from tests.deployment.ontap.double import Double, JobFault

pytestmark = pytest.mark.installer


def test_the_check_predicts_the_first_run_and_the_second_changes_nothing(cluster: Double, run: Run) -> None:
    for record in cluster.store.collections["cluster/licensing/licenses"]:
        if record["name"] == "nfs":
            record["state"] = "unlicensed"
    licence = {"ontap_license_codes": ["A" * 28]}
    predicted = run("--check", **licence)
    assert predicted.code == 0, predicted.failures
    assert cluster.changes() == []

    first = run(**licence)
    assert first.code == 0, first.failures
    assert predicted.changes == first.changes
    assert "A" * 28 not in first.output

    held = cluster.store.collections
    (svm,) = held["svm/svms"]
    assert [aggregate["name"] for aggregate in svm["aggregates"]] == ["aggr1_a800_01", "aggr1_a800_02"]
    assert {lif["ip"]["address"] for lif in held["network/ip/interfaces"]} == {
        "192.168.11.11",
        "192.168.11.12",
    }
    domain = next(d for d in held["network/ethernet/broadcast-domains"] if d["name"] == "muster_data")
    assert domain["mtu"] == 9000
    assert {(port["node"]["name"], port["name"]) for port in domain["ports"]} == {
        ("a800-01", "a0a-3111"),
        ("a800-02", "a0a-3111"),
    }
    mtus = {port["name"]: port["mtu"] for port in held["network/ethernet/ports"]}
    assert mtus["a0a"] == mtus["a0a-3111"] == 9000, "a VLAN carries no larger frames than its port"
    assert mtus["e0M"] == 1500
    (service,) = held["protocols/nfs/services"]
    assert service["protocol"]["v3_enabled"] is True
    assert service["protocol"]["v41_enabled"] is True
    (policy,) = held["protocols/nfs/export-policies"]
    assert [[c["match"] for c in rule["clients"]] for rule in policy["rules"]] == [
        ["192.168.11.0/24", "192.168.12.0/24"],
        ["10.61.1.7"],
    ]
    (account,) = held["security/accounts"]
    assert account["role"]["name"] == "muster_trident"
    assert account["password"] == TRIDENT_PASSWORD

    before = len(cluster.changes())
    second = run(**licence)
    assert second.code == 0, second.failures
    assert second.changes == []
    assert cluster.changes()[before:] == []


def test_the_role_of_trident_is_not_that_of_an_administrator(prepared: Double) -> None:
    (role,) = prepared.store.collections["security/roles"]
    granted = {privilege["path"]: privilege["access"] for privilege in role["privileges"]}
    assert granted["/api/svm/svms"] == "readonly"
    assert granted["/api/storage/volumes"] == "all"
    assert not any(path in granted for path in ("/api", "/api/security", "/api/storage/luns", "DEFAULT"))


@pytest.mark.quick
def test_a_host_that_is_dead_is_not_called_an_old_version(cluster: Double, run: Run) -> None:
    cluster.stop()
    result = run()
    assert result.code != 0
    (failure,) = result.failures
    assert f"https://127.0.0.1:{cluster.port}/api does not answer" in failure
    assert "Check ontap_hostname" in failure
    assert "9.7" not in failure


def test_an_unknown_authority_is_named(run: Run) -> None:
    (failure,) = run(ontap_ca_path="").failures
    assert "Its certificate is not trusted: set ontap_ca_path" in failure


@pytest.mark.quick
def test_a_refused_account_is_named_and_its_password_is_not(cluster: Double, run: Run) -> None:
    result = run(ontap_password="wrong-horse")
    (failure,) = result.failures
    assert "refuses the account admin (HTTP 401)" in failure
    assert "wrong-horse" not in result.output
    assert cluster.changes() == []


@pytest.mark.quick
def test_an_old_version_is_named_with_the_one_that_is_needed(cluster: Double, run: Run) -> None:
    cluster.version = (9, 6, 4)
    (failure,) = run().failures
    assert failure.startswith("a800 runs ONTAP 9.6.4, this site needs 9.12.1")
    assert cluster.changes() == []


def test_all_that_the_cluster_lacks_is_said_at_once(cluster: Double, run: Run) -> None:
    cluster.store.collections["storage/aggregates"].clear()
    cluster.store.collections["cluster/licensing/licenses"].clear()
    result = run(ontap_trident_password="", ontap_broadcast_ports=["a800-03:e5a"])
    failures = "\n".join(result.failures)
    assert "has no data aggregate that is online" in failures
    assert "nfs is not licensed" in failures
    assert "has no port a800-03:e5a" in failures
    assert "ontap_trident_password is empty" in failures
    assert cluster.changes() == []


def test_an_svm_that_was_made_without_its_aggregates_is_completed_by_the_next_run(
    cluster: Double, run: Run
) -> None:
    cluster.job_fault = JobFault("POST", "svm/svms", "Insufficient space in aggregate", lost=("aggregates",))
    broken = run()
    assert broken.code != 0
    assert "Insufficient space" in broken.failures[0]
    repaired = run()
    assert repaired.code == 0, repaired.failures
    (svm,) = cluster.store.collections["svm/svms"]
    assert len(svm["aggregates"]) == 2


def test_a_service_whose_job_failed_is_completed_by_the_next_run(prepared: Double, run: Run) -> None:
    prepared.store.collections["protocols/nfs/services"].clear()
    prepared.job_fault = JobFault("POST", "protocols/nfs/services", "LIF manager is busy")
    broken = run(part="configure")
    assert broken.code != 0
    assert "LIF manager is busy" in broken.failures[0]
    assert run(part="configure").code == 0
    assert run(part="verify").code == 0


def test_the_password_is_changed_only_on_request(prepared: Double, run: Run) -> None:
    (account,) = prepared.store.collections["security/accounts"]
    assert run(part="configure", ontap_trident_password="another-4858").changes == []
    assert account["password"] == TRIDENT_PASSWORD
    result = run(part="configure", ontap_trident_password="another-4858", ontap_trident_password_reset=True)
    assert result.changes == ["Provide Trident's account"]
    assert account["password"] == "another-4858"
    assert "another-4858" not in result.output


def test_a_refused_password_is_told_without_the_password(prepared: Double, run: Run) -> None:
    prepared.store.collections["security/accounts"].clear()
    result = run(part="configure", ontap_trident_password="shorty7")
    assert result.code != 0
    assert "at least 8 characters" in result.failures[-1]
    assert "shorty7" not in result.output


def test_drift_is_found_by_verify_and_repaired_by_a_run(prepared: Double, run: Run) -> None:
    lif = prepared.store.collections["network/ip/interfaces"][0]
    lif |= {"enabled": False, "state": "down"}
    (policy,) = prepared.store.collections["protocols/nfs/export-policies"]
    del policy["rules"][1]
    (account,) = prepared.store.collections["security/accounts"]
    account["locked"] = True
    failures = "\n".join(run(part="verify").failures)
    assert "missing or down: 192.168.11.11" in failures
    assert "no rule for 10.61.1.7" in failures
    assert "trident of SVM svm_ai is missing, locked" in failures
    account["locked"] = False
    (role,) = prepared.store.collections["security/roles"]
    role["privileges"] = [each for each in role["privileges"] if each["path"] != "/api/storage/volumes"]
    (unauthorized,) = run(part="verify", ontap_lifs=[], ontap_export_rules=[]).failures
    assert "The role muster_trident of SVM svm_ai does not grant all on /api/storage/volumes:" in unauthorized
    assert run().changes == [
        "Provide the interfaces",
        "Allow the nodes to mount",
        "Give Trident a role of least privilege",
    ]


def test_uninstall_keeps_the_data_and_says_so(prepared: Double, run: Run) -> None:
    prepared.store.add_volume("trident_pvc_1", "svm_ai")
    result = run(part="uninstall")
    assert result.code == 0, result.failures
    held = prepared.store.collections
    assert held["security/accounts"] == []
    assert held["security/roles"] == []
    assert [volume["name"] for volume in held["storage/volumes"]] == ["trident_pvc_1"]
    assert (
        "SVM svm_ai with its interfaces and export policies, and 1 volume(s): trident_pvc_1" in result.output
    )
    assert run(part="uninstall").changes == []


def test_uninstall_refuses_to_delete_data_that_it_was_not_told_to_delete(prepared: Double, run: Run) -> None:
    prepared.store.add_volume("trident_pvc_1", "svm_ai")
    (failure,) = run(part="uninstall", ontap_uninstall_svm=True).failures
    assert "SVM svm_ai holds 1 volume(s): trident_pvc_1" in failure
    assert prepared.changes() == []

    result = run(part="uninstall", ontap_uninstall_svm=True, ontap_uninstall_data=True)
    assert result.code == 0, result.failures
    assert prepared.store.collections["svm/svms"] == []
    assert prepared.store.collections["storage/volumes"] == []
