//! `watchbell dev`, killed, stopped, starved and annoyed: the real binary and real sockets.
//!
//! One binary, so that it links once; one module per idea.

mod dev {
    mod access;
    mod actor;
    mod apply;
    mod backfill;
    mod backup;
    mod canary;
    mod cluster;
    mod command;
    mod connection;
    mod crash;
    mod demo;
    mod deploy;
    mod document;
    mod door;
    mod elect;
    mod election;
    mod engine;
    mod example;
    mod feed;
    mod full;
    mod golden;
    mod hold;
    mod host;
    mod island;
    mod library;
    mod loss;
    mod outage;
    mod pick;
    mod process;
    mod queue;
    mod queue_backlog;
    mod queue_crowd;
    mod queue_fault;
    mod queue_handover;
    mod queue_hostile;
    mod queue_output;
    mod queue_silence;
    mod queue_storm;
    mod queue_worker;
    mod readme;
    mod refusal;
    mod ring;
    mod server;
    mod setting;
    mod start;
    mod stop;
    mod verdict;
    mod witness;
    mod worker_command;
    mod worker_command_fault;
    mod worker_example;
    mod worker_library;
    mod worker_user;
}
