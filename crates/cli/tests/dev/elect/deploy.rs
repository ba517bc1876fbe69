//! What is in `deploy/` fits the program. Neither containers nor Kubernetes are here to try it with.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn chart(path: &str) -> String {
    read(&format!("deploy/helm/watchbell-elect/{path}"))
}

#[test]
fn the_image_elects_without_arguments_and_is_not_root() {
    let image = read("deploy/Containerfile");
    for line in ["USER 65532:65532", "ENTRYPOINT [\"watchbell\"]", "CMD [\"elect\"]"] {
        assert!(image.lines().any(|each| each == line), "{line}");
    }
    assert_eq!(image.matches("\nFROM ").count(), 2, "one to build, one to run");
}

#[test]
fn the_chart_starts_three_that_are_not_root_and_cannot_write() {
    assert!(chart("values.yaml").contains("replicaCount: 3\n"));
    let deployment = chart("templates/deployment.yaml");
    for setting in [
        "replicas: {{ .Values.replicaCount }}",
        "runAsNonRoot: true",
        "readOnlyRootFilesystem: true",
        "allowPrivilegeEscalation: false",
        "drop: [\"ALL\"]",
        "path: /livez",
    ] {
        assert!(deployment.contains(setting), "{setting}");
    }
    let monitor = chart("templates/servicemonitor.yaml");
    assert!(monitor.contains("kind: ServiceMonitor") && monitor.contains("path: /metrics"));
    assert!(chart("templates/service.yaml").contains("name: metrics"));
}

#[test]
fn the_chart_sets_all_variables_of_the_redis_scheduler_and_none_that_nobody_reads() {
    let deployment = chart("templates/deployment.yaml");
    let set: BTreeSet<&str> = deployment
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- name: "))
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
        .collect();
    let code = read("crates/cli/src/args/elect.rs") + &read("crates/cli/src/args.rs");
    for name in &set {
        assert!(code.contains(&format!("env = \"{name}\"")), "nobody reads {name}");
    }
    for name in [
        "APP_ENV",
        "METRICS_PORT",
        "REDIS_HOST",
        "REDIS_PORT",
        "REDIS_PASSWORD",
        "REDIS_LEADER_KEY",
    ] {
        assert!(set.contains(name), "{name} is not set");
    }
}

#[test]
fn every_value_that_a_template_uses_is_there() {
    let values = chart("values.yaml");
    for template in ["deployment", "service", "servicemonitor"] {
        let text = chart(&format!("templates/{template}.yaml"));
        for used in text.split(".Values.").skip(1) {
            let end = used.find(|char: char| !char.is_ascii_alphanumeric() && char != '.');
            let path = &used[..end.unwrap_or(used.len())];
            for word in path.split('.') {
                assert!(values.contains(&format!("{word}:")), "{template}: {path}");
            }
        }
    }
}
