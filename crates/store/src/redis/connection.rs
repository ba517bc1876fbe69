//! One connection to one Redis: how it comes server, and what is checked before it is used.
//!
//! The crate's own connections resend nothing, and neither do we; its `ConnectionManager` is not used, because it hides which server answers.
//! The way in is ours step by step (TCP, TLS, password, database, `INFO`), so that each that fails has a sentence of its own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::authority;
use engine::limits::STORE_CONNECT_MAX;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, RedisConnectionInfo, RedisError, Value as Reply,
    cmd,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::error::{ConnectError, ConnectResult, FORMER};
use super::setting::{RedisSettings, Sync};
use super::tls::{self, Distrust};
use crate::{EngineFault, StoreHost, StoreSecret};

/// Commands that may wait on one connection; senders of further ones wait themselves.
const PIPELINE_MAX: usize = 1_024;

/// How long it may take to find out whether the other side speaks TLS, once something went wrong.
const PROBE_MAX: Duration = Duration::from_millis(500);

/// Where a Redis is, and how to get in.
pub(super) struct RedisConnector {
    pub(super) hosts: Vec<StoreHost>,
    pub(super) user: Option<String>,
    pub(super) password: Option<StoreSecret>,
    pub(super) database: u32,
    /// Set if the URL says TLS.
    pub(super) tls: Option<TlsConnector>,
    /// The host that is tried first: the one that worked last, or the one behind it that did not.
    pub(super) first: AtomicUsize,
}

/// Whether a server with these settings counts.
pub(super) type ServerFilter = dyn Fn(&RedisSettings) -> bool + Send + std::marker::Sync;

/// A connection that was found fit. Closed when its last owner drops it.
pub(super) struct RedisConnection {
    connection: MultiplexedConnection,
    /// Whether something was asked since the last answer came.
    is_owed: AtomicBool,
    driver: AbortHandle,
    _drivers: JoinSet<()>,
}

impl RedisConnection {
    /// Sends a command and waits for its answer, as long as it takes.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Reply, RedisError> {
        self.is_owed.store(true, Ordering::Relaxed);
        let reply = self.connection.clone().send_packed_command(command).await;
        self.is_owed.store(false, Ordering::Relaxed);
        match reply {
            Ok(Reply::ServerError(told)) => Err(told.into()),
            other => other,
        }
    }

    /// Whether something was asked since the last answer came.
    pub(super) fn is_owed(&self) -> bool {
        self.is_owed.load(Ordering::Relaxed)
    }

    /// Whether the connection is known to be gone: a command that is given to it now is not sent.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }

    /// Asks how the server is set up, and refuses one that cannot hold a store.
    pub(super) async fn look(&self) -> ConnectResult<RedisSettings> {
        let info = match self.ask(&cmd("INFO")).await {
            Ok(Reply::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(Reply::VerbatimString { text, .. } | Reply::SimpleString(text)) => text,
            Ok(_) => {
                return Err(ConnectError::new(
                    EngineFault::Unreachable,
                    "it does not answer as a Redis does",
                ));
            }
            Err(why) => return Err(ConnectError::told(&why)),
        };
        let mut config = cmd("CONFIG");
        // One pattern for two settings: before 7.0 only one is taken.
        config.arg("GET").arg("*appendfsync*");
        let sync = match self.ask(&config).await {
            Ok(reply) => sync(&reply),
            Err(why) if why.is_io_error() => return Err(ConnectError::told(&why)),
            Err(_) => None,
        };
        RedisSettings::read(&info, sync)
    }
}

fn sync(config: &Reply) -> Option<Sync> {
    let pairs: Vec<(String, String)> = redis::from_redis_value(config.clone()).ok()?;
    let of = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    Some(Sync {
        when: of("appendfsync")?,
        pauses: of("no-appendfsync-on-rewrite").is_some_and(|value| value == "yes"),
    })
}

impl RedisConnector {
    /// A connection to the first host that can hold a store and counts, beginning with the one that did last.
    pub(super) async fn connect(
        &self,
        counts: &ServerFilter,
    ) -> ConnectResult<(RedisConnection, RedisSettings)> {
        let begin = self.first.load(Ordering::Relaxed);
        let mut troubles = Vec::new();
        for step in 0..self.hosts.len() {
            let place = (begin + step) % self.hosts.len();
            // Whoever is called off in the middle leaves word where to go on.
            self.first.store(place + 1, Ordering::Relaxed);
            match self.try_host(&self.hosts[place]).await {
                Ok((connection, setting)) if counts(&setting) => {
                    self.first.store(place, Ordering::Relaxed);
                    return Ok((connection, setting));
                }
                Ok(_) => troubles.push((place, ConnectError::new(EngineFault::ReadOnly, FORMER))),
                Err(trouble) => troubles.push((place, trouble)),
            }
        }
        self.first.store(begin, Ordering::Relaxed);
        Err(self.sum_up(troubles))
    }

    /// The most telling of several: what a person can mend goes before a host that is merely gone.
    fn sum_up(&self, troubles: Vec<(usize, ConnectError)>) -> ConnectError {
        let telling =
            troubles.iter().position(|(_, trouble)| trouble.fault != EngineFault::Unreachable);
        let (place, trouble) =
            troubles.into_iter().nth(telling.unwrap_or(0)).expect("a URL names a host");
        if self.hosts.len() == 1 {
            return trouble;
        }
        ConnectError::new(trouble.fault, format!("{}: {}", self.hosts[place], trouble.why))
    }

    async fn try_host(&self, host: &StoreHost) -> ConnectResult<(RedisConnection, RedisSettings)> {
        let deadline = Instant::now() + STORE_CONNECT_MAX;
        let stream = self.stream(host, deadline).await?;
        let connection = open(stream, None, RedisConnectionInfo::default().set_skip_set_lib_name())
            .await
            .map_err(|why| ConnectError::told(&why))?;
        let greeting = async {
            self.greet(&connection).await?;
            connection.look().await
        };
        match timeout_at(deadline, greeting).await {
            Ok(Ok(setting)) => Ok((connection, setting)),
            Err(_) => Err(silent()),
            Ok(Err(trouble)) => {
                // A server that expects TLS closes the connection, or answers what is no Redis at all.
                if trouble.fault == EngineFault::Unreachable
                    && self.tls.is_none()
                    && speaks_tls(host).await
                {
                    let why = "it speaks TLS, and the URL says redis: instead of rediss:";
                    return Err(ConnectError::new(EngineFault::Tls, why));
                }
                Err(trouble)
            }
        }
    }

    /// A connection that gives whatever the server pushes to `push`.
    pub(super) async fn listen(
        &self,
        push: impl AsyncPushSender,
    ) -> ConnectResult<RedisConnection> {
        let host = &self.hosts[self.first.load(Ordering::Relaxed) % self.hosts.len()];
        let deadline = Instant::now() + STORE_CONNECT_MAX;
        let stream = self.stream(host, deadline).await?;
        let mut info = RedisConnectionInfo::default()
            .set_skip_set_lib_name()
            .set_protocol(ProtocolVersion::RESP3);
        if let Some(password) = &self.password {
            info = info.set_password(password.reveal());
        }
        if let Some(user) = &self.user {
            info = info.set_username(user);
        }
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        match timeout_at(deadline, open(stream, Some(config), info)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(why)) => Err(ConnectError::told(&why)),
            Err(_) => Err(silent()),
        }
    }

    async fn stream(
        &self,
        host: &StoreHost,
        deadline: Instant,
    ) -> ConnectResult<Box<dyn ByteStream>> {
        let unreachable = |why: String| ConnectError::new(EngineFault::Unreachable, why);
        let connect = TcpStream::connect((host.name.as_str(), host.port));
        let stream = match timeout_at(deadline, connect).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(why)) => return Err(unreachable(why.to_string())),
            Err(_) => return Err(silent()),
        };
        stream.set_nodelay(true).map_err(|why| unreachable(why.to_string()))?;
        let Some(connector) = &self.tls else { return Ok(Box::new(stream)) };
        match timeout_at(deadline, tls::handshake(connector, &host.name, stream)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(Distrust::Tls(why))) => Err(ConnectError::new(EngineFault::Tls, why)),
            Ok(Err(Distrust::Other(_))) | Err(_) if speaks_plain(host).await => {
                let why = "it does not speak TLS, and the URL says rediss: instead of redis:";
                Err(ConnectError::new(EngineFault::Tls, why))
            }
            Ok(Err(Distrust::Other(why))) => Err(unreachable(why)),
            Err(_) => Err(silent()),
        }
    }

    /// Password, database and a name for `CLIENT LIST`.
    async fn greet(&self, connection: &RedisConnection) -> ConnectResult {
        if let Some(password) = &self.password {
            let mut auth = cmd("AUTH");
            if let Some(user) = &self.user {
                auth.arg(user);
            }
            auth.arg(password.reveal());
            if let Err(why) = connection.ask(&auth).await {
                let said = why.detail().unwrap_or_default();
                if said.contains("without any password configured") {
                    let why = "it has no password for the default user, and the URL has one";
                    return Err(ConnectError::new(EngineFault::Password, why));
                }
                let trouble = ConnectError::told(&why);
                let is_refused = why.code() == Some("ERR");
                return Err(if is_refused {
                    ConnectError::new(
                        EngineFault::Password,
                        "it does not take a user and a password",
                    )
                } else {
                    trouble
                });
            }
        }
        if self.database != 0 {
            let mut select = cmd("SELECT");
            select.arg(self.database);
            if let Err(why) = connection.ask(&select).await {
                if why.code() == Some("ERR") {
                    let why = format!(
                        "it has no database {} (see databases in its configuration)",
                        self.database
                    );
                    return Err(ConnectError::new(EngineFault::Database, why));
                }
                return Err(ConnectError::told(&why));
            }
        }
        let mut name = cmd("CLIENT");
        name.arg("SETNAME").arg("watchbell");
        match connection.ask(&name).await {
            // Only a kindness to whoever looks: an old server, or one that does not permit it, is as good.
            Err(why) if !why.is_io_error() && why.code() != Some("NOAUTH") => Ok(()),
            Err(why) => Err(ConnectError::told(&why)),
            Ok(_) => Ok(()),
        }
    }
}

fn silent() -> ConnectError {
    let seconds = STORE_CONNECT_MAX.as_secs();
    ConnectError::new(EngineFault::Unreachable, format!("no answer within {seconds} s"))
}

async fn open(
    stream: Box<dyn ByteStream>,
    config: Option<AsyncConnectionConfig>,
    info: RedisConnectionInfo,
) -> Result<RedisConnection, RedisError> {
    let config = config
        .unwrap_or_default()
        // Deadlines are ours: the crate's would cut scans short at 500 ms.
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_MAX);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info, stream, config).await?;
    let mut drivers = JoinSet::new();
    let driver = drivers.spawn(driver);
    Ok(RedisConnection { connection, is_owed: AtomicBool::new(false), driver, _drivers: drivers })
}

/// Whether a Redis answers here without TLS.
async fn speaks_plain(host: &StoreHost) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((host.name.as_str(), host.port)).await.ok()?;
        stream.write_all(b"PING\r\n").await.ok()?;
        stream.read_u8().await.ok()
    };
    matches!(timeout(PROBE_MAX, ask).await, Ok(Some(b'+' | b'-')))
}

/// Whether something answers here with TLS, trusted or not.
async fn speaks_tls(host: &StoreHost) -> bool {
    let ask = async {
        let connector = tls::connector(authority::public_roots());
        let stream = TcpStream::connect((host.name.as_str(), host.port)).await.ok()?;
        match tls::handshake(&connector, &host.name, stream).await {
            Ok(_) | Err(Distrust::Tls(_)) => Some(()),
            Err(Distrust::Other(_)) => None,
        }
    };
    matches!(timeout(PROBE_MAX, ask).await, Ok(Some(())))
}

/// Bytes there and back, encrypted or not.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {}
