use super::*;

#[test]
fn what_runs_share_is_there_once_and_goes_with_the_last_of_them() {
    let mut known = HashSet::new();
    let shared: Vec<_> = (0..100).map(|number| share(&mut known, Arc::new(number % 7))).collect();
    assert_eq!(known.len(), 7);
    assert!(Arc::ptr_eq(&shared[0], &shared[7]));
    for number in 0..10_000 {
        share(&mut known, Arc::new(number));
        assert!(known.len() <= 32, "{}", known.len());
    }
    assert!((0..7).all(|number| known.contains(&number)));
}

#[test]
fn what_runs_shared_goes_when_they_are_gone_though_no_others_come() {
    let mut runs = UnfinishedRuns::default();
    let run = |sequence| SubmittedRun {
        queue: SerialId(1),
        order: ClaimOrder { priority: 5, due: Instant(1), sequence },
        born: Instant(1),
        has_body: false,
        policy: GivenPolicy::default(),
        role: RunRole::Plain,
        details: Some(Arc::new(RunDetails {
            labels: Some(format!("n={sequence}").into()),
            ..RunDetails::default()
        })),
    };
    let all = 10_000;
    (1..=all).for_each(|number| runs.apply(&QueueDelta::Submitted(run(number))));
    assert_eq!(runs.details.len(), runs.len());
    for number in 1..=all {
        let place = runs.place(number).unwrap();
        runs.apply(&QueueDelta::Ended(place));
        assert!(runs.details.len() <= 2 * runs.len() + UNSHARED_MAX, "{}", runs.details.len());
    }
    assert!(runs.details.capacity() < 8_192, "{}", runs.details.capacity());
}
