//! Where notifications about the cluster go: who knows that URL can write to somebody's chat, so nobody tells it.

use rig::{redis, until};

use super::*;

/// The secret in the URL.
const SECRET: &str = "canary-of-a-chat";

/// What the next one who calls says; it is answered that this failed.
async fn heard(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = [0; 8_192];
    let len = stream.read(&mut bytes).await.unwrap();
    let answer = format!("HTTP/1.1 500 {ANSWERED}\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_notifications_go_is_told_to_nobody_who_looks_around() {
    let _machine = machine::waits().await;
    let (dir, _) = place();
    let redis = tokio::task::block_in_place(|| redis::Setup::durable().start());
    let chat = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let notify = format!("http://{}/{SECRET}?token={SECRET}", chat.local_addr().unwrap());
    let flags = ["--log-level", "trace", "--notify-url", &notify];
    let start = async |name: &str| {
        let own = ["--node", name, "--listen", "127.0.0.1:0"];
        let (command, data) = (|| Command::new(WATCHBELL), dir.path().join(name));
        Server::start_by(command, &redis.url(), &data, &[&own, &flags]).await
    };
    let (a, mut b) = (start("a").await, start("b").await);
    until("they see each other", PATIENCE, || async {
        let cluster = a.client().cluster().await.unwrap();
        (cluster.nodes.len() == 2).then_some(())
    })
    .await;
    b.kill();
    // It is sent there, and not taken.
    let sent = tokio::time::timeout(PATIENCE, heard(&chat)).await.unwrap();
    assert!(sent.starts_with(&format!("POST /{SECRET}?token={SECRET} ")), "{sent}");
    until("it is known that it was not taken", PATIENCE, || async {
        a.told().contains("not notified yet").then_some(())
    })
    .await;

    let mut said = Said::default();
    for path in ["/metrics", "/v1/cluster", "/v1/scheduler", "/v1/audit"] {
        said.answer(path, a.ask("GET", path).send().await.is(200));
    }
    said.note("a", a.told());
    said.note("b", b.told());
    said.check([SECRET, ANSWERED]);
    a.stop().await;
}

#[test]
fn a_url_for_notifications_that_is_none_is_refused_and_not_repeated() {
    let (dir, data) = place();
    let store = url(&data);
    let mut said = Said::default();
    for wrong in [
        format!("ftp://chat.example/{SECRET}"),
        format!("https://user:{SECRET}@chat.example/"),
        format!("https://chat.example/{SECRET}#top"),
        format!("https://chat.example:0/{SECRET}"),
        SECRET.to_owned(),
    ] {
        let args = ["server", "--store", &store, "--notify-url", &wrong, "--log-level", "trace"];
        let output = Command::new(WATCHBELL).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("--notify-url: a "), "{told}");
        said.note("server", told);
        assert!(!data.exists(), "it is refused before there is a store");
    }
    // In a variable and in a file.
    let right = format!("https://chat.example/{SECRET}");
    let file = dir.path().join("watchbell.toml");
    fs::write(&file, format!("notify-url = \"{right}\"\n")).unwrap();
    let file = file.to_str().unwrap();
    for args in [
        &["config", "show"][..],
        &["config", "show", "--output", "json"],
        &["config", "show", "--notify-url", &right],
        &["config", "show", "--config", file],
        &["server", "--help"],
        &["server", "--help", "--config", file],
    ] {
        let mut command = Command::new(WATCHBELL);
        if !args.contains(&"--config") {
            command.env("WATCHBELL_NOTIFY_URL", &right);
        }
        let output = command.args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("notify-url"), "{output:?}");
        said.note_output(&["a look"], &output);
    }
    said.check([SECRET]);
}
