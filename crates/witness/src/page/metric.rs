//! What there is to measure of a witness, as Prometheus reads it.

use std::fmt::Write;

use crate::report::Report;

/// The page.
pub(super) fn text(report: &Report) -> String {
    let counts = &report.counts;
    let lists = [
        ("ticks_total", "Ticks that were heard", "counter", counts.ticks),
        ("repeated_ticks_total", "Ticks that came again", "counter", counts.repeated),
        ("unreadable_total", "What came and is no tick", "counter", counts.unreadable),
        ("lost_ticks", "Ticks that were made and did not come", "gauge", counts.lost),
        (
            "overlaps",
            "Pairs of instances that acted at a time",
            "gauge",
            report.overlaps.len() as u64,
        ),
        (
            "tokens_back",
            "Pairs of which one acted under a token that was over",
            "gauge",
            report.tokens_back.len() as u64,
        ),
        ("holds", "Holds that were heard of", "gauge", report.holds.len() as u64),
    ];
    let mut text = String::new();
    for (name, help, kind, number) in lists {
        let _ = writeln!(
            text,
            "# HELP watchbell_witness_{name} {help}\n# TYPE watchbell_witness_{name} {kind}\n\
             watchbell_witness_{name} {number}"
        );
    }
    text
}
