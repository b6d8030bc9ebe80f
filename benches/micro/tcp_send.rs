//! The floor under a streamed token: what the kernel takes to send one event
//! on a loopback connection, in CPU time of the sender. The receiver's half of
//! TCP is in it, because loopback runs that on the sender's core, too.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use corelane::clock::cpu_time;
use corelane::placement::{Topology, Wishes, pin_this_thread};
use criterion::{Criterion, Throughput, criterion_group};
use rustix::event::{PollFd, PollFlags, poll};

const CONNECTIONS: usize = 64;
/// What a step goes through, on the core that sends where there are only two: enough for
/// the kernel's code and data to be gone from the caches of one.
const WEIGHTS_BYTES: usize = 8 << 20;
/// About what an event of one token is on the wire.
const EVENT: [u8; 230] = [b'x'; 230];

fn tcp_send(c: &mut Criterion) {
    let placement = Topology::read()
        .and_then(|topology| topology.place(&Wishes::default()))
        .expect("a core for each");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut senders = Vec::with_capacity(CONNECTIONS);
    let mut receivers = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        receivers.push(TcpStream::connect(address).expect("it listens"));
        let (sender, _) = listener.accept().expect("somebody connected");
        sender.set_nodelay(true).expect("a live socket");
        senders.push(sender);
    }
    let reader = std::thread::spawn(move || read_all(receivers));
    pin_this_thread(&[placement.front_core]).expect("a core that exists");
    let mut group = c.benchmark_group("tcp_send");
    group.throughput(Throughput::Elements(CONNECTIONS as u64));
    let mut weights = vec![1u8; WEIGHTS_BYTES];
    for (name, is_cold) in [("warm", false), ("behind a step of the model", true)] {
        group.bench_function(format!("64 events on 64 connections, CPU time, {name}"), |b| {
            b.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    let began = cpu_time();
                    for sender in &mut senders {
                        sender.write_all(&EVENT).expect("a live socket");
                    }
                    spent += cpu_time() - began;
                    // The receiver goes to sleep again.
                    std::thread::sleep(Duration::from_micros(500));
                    if is_cold {
                        weights.iter_mut().for_each(|weight| *weight = weight.wrapping_mul(3));
                    }
                }
                spent
            });
        });
    }
    black_box(weights);
    group.finish();
    drop(senders);
    reader.join().expect("the reader ends when the senders do");
}

/// Reads whatever comes, until every sender has closed.
fn read_all(mut receivers: Vec<TcpStream>) {
    let mut buffer = [0; 4096];
    while !receivers.is_empty() {
        let mut ready: Vec<PollFd<'_>> =
            receivers.iter().map(|receiver| PollFd::new(receiver, PollFlags::IN)).collect();
        poll(&mut ready, None).expect("sockets can be waited for");
        let mut ready: Vec<bool> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
        ready.reverse();
        receivers.retain_mut(|receiver| {
            let ready = ready.pop().expect("one for each receiver");
            !ready || receiver.read(&mut buffer).expect("a live socket") > 0
        });
    }
}

criterion_group! { name = benches; config = crate::settings::short(); targets = tcp_send }
