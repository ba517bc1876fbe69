//! What a program prints, until its end.
//!
//! A pipe ends when everybody who can write to it is gone. That may be never: a program can hand its standard output to a
//! process outside of its tree. So an [`Output`] has a second end: the tree's. What was printed until then is in the pipe
//! and is read; then it is over, whoever still holds the other side.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;

use crate::supervised::Shim;

/// One of the pipes of a program. A program whose output nobody reads waits when its pipe is full, and can be ended like
/// any other.
#[derive(Debug)]
pub struct Output {
    pipe: Receiver,
    shim: Arc<Shim>,
}

impl Output {
    pub(crate) fn new(pipe: OwnedFd, shim: Arc<Shim>) -> io::Result<Self> {
        Ok(Self { pipe: Receiver::from_owned_fd(pipe)?, shim })
    }

    /// Reads what there is, and waits while there is nothing; 0 at the end. Nothing is lost if this is dropped early.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.pipe.try_read(buffer) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            tokio::select! {
                readable = self.pipe.readable() => readable?,
                () = self.shim.gone() => return self.read_last(buffer),
            }
        }
    }

    /// Reads on to the end. Only for programs that are known to print little.
    pub async fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.read(&mut buffer).await? {
                0 => return Ok(all),
                some => all.extend(&buffer[..some]),
            }
        }
    }

    /// Past the end of the tree nothing is added. The pipe itself is asked: the runtime may not have been told yet.
    fn read_last(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.pipe, buffer) {
            Err(Errno::AGAIN) => Ok(0),
            other => Ok(other?),
        }
    }
}
