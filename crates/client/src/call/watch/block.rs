//! Server-sent events, from bytes to blocks.

/// Longest block that is read.
const BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// A block of a stream of server-sent events: what a server sends between two empty lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseBlock {
    /// The place after it.
    pub id: Option<String>,
    /// What kind of event it is.
    pub kind: Option<String>,
    /// What it says; empty in a comment.
    pub data: String,
}

/// A block that is too long to be one of ours.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {BLOCK_BYTES_MAX} bytes")]
pub(super) struct TooLong;

/// Reads blocks from pieces that are cut anywhere.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    bytes: Vec<u8>,
    /// Up to here no line ends.
    looked: usize,
    block: SseBlock,
    /// Bytes of lines that belong to the block.
    taken: usize,
    is_begun: bool,
}

impl SseReader {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next block, if it is whole.
    pub(super) fn next(&mut self) -> Result<Option<SseBlock>, TooLong> {
        while let Some(end) = self.bytes[self.looked..].iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.bytes.drain(..=self.looked + end).collect();
            self.looked = 0;
            self.taken += line.len();
            line.truncate(line.trim_ascii_end().len());
            if line.is_empty() {
                self.taken = 0;
                let block = std::mem::take(&mut self.block);
                if std::mem::take(&mut self.is_begun) {
                    return Ok(Some(block));
                }
                continue;
            }
            self.is_begun = true;
            self.take(&String::from_utf8_lossy(&line));
            self.check()?;
        }
        self.looked = self.bytes.len();
        self.check().map(|()| None)
    }

    fn check(&self) -> Result<(), TooLong> {
        // Whole blocks may wait behind this one: they count when it is their next_page.
        let rest = if self.looked == self.bytes.len() { self.bytes.len() } else { 0 };
        if self.taken + rest <= BLOCK_BYTES_MAX { Ok(()) } else { Err(TooLong) }
    }

    fn take(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.block.id = Some(value.to_owned()),
            "data" => {
                if !self.block.data.is_empty() {
                    self.block.data.push('\n');
                }
                self.block.data.push_str(value);
            }
            "event" => self.block.kind = Some(value.to_owned()),
            // A comment has no name.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(reader: &mut SseReader) -> Vec<SseBlock> {
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    #[test]
    fn blocks_are_the_same_wherever_they_are_cut() {
        let text =
            ": watching\nid: a-1\n\nid: a-2\nevent: x\ndata: {\"a\":\ndata: 1}\r\n\r\n\n: beat\n\n";
        let id = |text: &str| Some(text.to_owned());
        let expected = [
            SseBlock { id: id("a-1"), ..SseBlock::default() },
            SseBlock { id: id("a-2"), kind: id("x"), data: "{\"a\":\n1}".to_owned() },
            SseBlock::default(),
        ];
        for cut in 0..=text.len() {
            let mut reader = SseReader::default();
            reader.push(&text.as_bytes()[..cut]);
            let mut found = blocks(&mut reader);
            reader.push(&text.as_bytes()[cut..]);
            found.extend(blocks(&mut reader));
            assert_eq!(found, expected, "{cut}");
        }
    }

    #[test]
    fn a_block_is_read_up_to_the_limit_and_refused_one_past_it() {
        let of = |len: usize| {
            let mut reader = SseReader::default();
            reader.push(format!("data:{}\n\n", "x".repeat(len - "data:\n".len())).as_bytes());
            reader.next()
        };
        assert!(of(BLOCK_BYTES_MAX).unwrap().is_some());
        assert_eq!(of(BLOCK_BYTES_MAX + 1), Err(TooLong));
        let mut endless = SseReader::default();
        endless.push(&vec![b'x'; BLOCK_BYTES_MAX + 1]);
        assert_eq!(endless.next(), Err(TooLong));
    }
}
