//! Records of former formats: of 1, whose fields had other names, and of 2, which knew no redriven runs of triggers.

use engine::queue::record::QueuedRecord;
use engine::record::{Format, RecordError, decode, encode};
use engine::shard::record::{FORMAT, RunRecord, RunState, TriggerState};

/// A run as format 1 has it, in this state and with these further fields.
fn former_run(state: &str, more: &str) -> RunRecord {
    let text = format!(
        r#"{{"format":1,"trigger":"1m7k7y6kp7stc","name":"slow","slot":"2026-11-16T22:34:18Z",
        "leaves":"2026-11-16T22:34:18Z","generation":1,"state":{state},"attempt":0,"webhook":{{"form":{{"scheme":"http",
        "host":"127.0.0.1","port":7499,"method":"POST","headers":[],"timeout_ms":15000}},"path":"/slow","body":null}},
        "policy":{{"catch_up":"latest","overlap":"queue_one","delivery":"at_least_once","retry":{{"attempts":3,
        "delay_ms":5000,"backoff":"exponential","max_delay_ms":300000}}}}{more}}}"#
    );
    decode(text.as_bytes(), FORMAT).unwrap()
}

#[test]
fn a_former_run_is_read_by_its_former_names() {
    assert_eq!(former_run(r#""queued""#, "").state, RunState::Blocked);
    let run = former_run(r#""running""#, r#","abroad":{"sender":"node/a/1","left_ms":700}"#);
    let remote = run.remote.unwrap();
    assert_eq!((&*remote.sender, remote.left_ms), ("node/a/1", 700));
}

#[test]
fn a_former_trigger_state_is_read_by_its_former_names() {
    let state: TriggerState = decode(br#"{"format":1,"held_ms":1500}"#, FORMAT).unwrap();
    assert_eq!(state.busy_elsewhere_ms, Some(1_500));
}

#[test]
fn what_format_2_left_is_read_and_its_readers_are_told_to_upgrade() {
    let queued = br#"{"format":2,"born":"2026-11-17T08:00:00Z","action":{"handler":"send"}}"#;
    let queued: QueuedRecord = decode(queued, FORMAT).unwrap();
    assert!(queued.action.is_some() && queued.redriven_from.is_none());
    let run = former_run(r#""blocked""#, "");
    assert_eq!(run.redriven_from, None);
    let refused = decode::<RunRecord>(&encode(FORMAT, &run), Format(2));
    assert!(matches!(refused, Err(RecordError::Newer { .. })), "{refused:?}");
}
