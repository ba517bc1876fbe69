//! A server that does next to nothing: reads requests, counts them, and says `ok`.
//!
//! It is as plain as HTTP/1.1 allows, so that what is measured is the sender: heads and lengths are found by
//! their bytes, and whatever came in one piece is answered in one piece.

use std::io::{self, BufRead, Write};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread;

use engine::instant::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::tally::Counters;
use crate::triggers::Ending;
use crate::triggers::args::ReceiverArgs;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The longest request: a head of ours and a body at the limit.
const REQUEST_BYTES_MAX: usize = 256 * 1_024;

/// Serves until stdin ends. Prints its addresses, and an answer to each line of stdin.
pub(crate) fn serve(typed: &ReceiverArgs) -> Result<(), Ending> {
    let counters = Arc::new(Counters::new());
    // Half of the cores: the rest is for whoever sends.
    let threads = thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
    let mut shares: Vec<Vec<StdListener>> = (0..threads).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for host in 0..usize::from(typed.hosts) {
        let listener = StdListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        addresses.push(listener.local_addr()?);
        shares[host % threads].push(listener);
    }
    for (number, share) in shares.into_iter().enumerate() {
        let counters = Arc::clone(&counters);
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let thread = thread::Builder::new().name(format!("receiver-{number}"));
        // It ends with the process.
        thread.spawn(move || runtime.block_on(accept_all(share, counters)))?;
    }
    converse(&addresses, &counters)
}

fn converse(addresses: &[SocketAddr], counters: &Counters) -> Result<(), Ending> {
    let mut out = io::stdout().lock();
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    writeln!(out, "{}", texts.join(" "))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let numbers: Vec<i64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if let [from, to, jittered_s] = numbers[..] {
            let jittered_s = u32::try_from(jittered_s).unwrap_or(0);
            counters.watch(Instant(from), Instant(to), jittered_s);
        }
        let tally = serde_json::to_string(&counters.tally());
        writeln!(out, "{}", tally.expect("a plain struct always serializes"))?;
        out.flush()?;
    }
    Ok(())
}

async fn accept_all(listeners: Vec<StdListener>, counters: Arc<Counters>) {
    let mut tasks = JoinSet::new();
    for listener in listeners {
        let counters = Arc::clone(&counters);
        tasks.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let counters = Arc::clone(&counters);
                connections.spawn(async move {
                    // A sender that breaks off is the sender's affair.
                    let _ = answer_all(stream, &counters).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

async fn answer_all(mut stream: TcpStream, counters: &Counters) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = vec![0; 8 * 1_024];
    let mut filled = 0;
    let mut answers = Vec::new();
    loop {
        let read = stream.read(&mut bytes[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let mut at = 0;
        while let Some(request) = Request::read(&bytes[at..filled]) {
            counters.request(request.len);
            if counters.is_watching()
                && let Some((slot, name)) = request.slot()
            {
                counters.slot(slot, name);
            }
            at += request.len;
            answers.extend_from_slice(ANSWER);
        }
        bytes.copy_within(at..filled, 0);
        filled -= at;
        if filled == bytes.len() {
            if bytes.len() >= REQUEST_BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            bytes.resize(bytes.len() * 2, 0);
        }
        if !answers.is_empty() {
            stream.write_all(&answers).await?;
            answers.clear();
        }
    }
}

/// A whole request at the beginning of some bytes.
struct Request<'a> {
    head: &'a [u8],
    len: usize,
}

impl<'a> Request<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let head_len = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let head = &bytes[..head_len];
        let body_len: usize =
            header(head, b"content-length: ").map_or(Some(0), |text| text.parse().ok())?;
        let len = head_len + body_len;
        (len <= bytes.len()).then_some(Self { head, len })
    }

    /// Its slot, and the name of its trigger.
    fn slot(&self) -> Option<(Instant, &'a str)> {
        let slot = header(self.head, b"watchbell-scheduled-time: ")?.parse().ok()?;
        let line = self.head.split(|byte| *byte == b'\r').next()?;
        let path = std::str::from_utf8(line).ok()?.split(' ').nth(1)?;
        Some((slot, path.strip_prefix('/')?))
    }
}

/// The value of a header, whose name senders of ours write in lower case.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    std::str::from_utf8(value).ok().map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"POST /bell-00000007 HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\
        watchbell-scheduled-time: 2027-03-28T01:00:00Z\r\n\r\nabcPOST /";

    #[test]
    fn a_request_is_read_when_it_is_whole() {
        let whole = TEXT.len() - 6;
        assert!(Request::read(&TEXT[..whole - 1]).is_none());
        let request = Request::read(TEXT).unwrap();
        assert_eq!(request.len, whole);
        assert_eq!(request.slot(), Some((Instant(1_806_195_600_000), "bell-00000007")));
    }
}
