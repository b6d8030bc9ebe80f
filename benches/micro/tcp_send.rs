//! Measures the floor under a streamed token: the sender's CPU time in the kernel for one event on
//! a loopback connection. It includes the receiver's half of TCP, which loopback runs on the
//! sender's core.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use corelane::clock::cpu_time;
use corelane::placement::{Topology, Wishes, pin_this_thread};
use criterion::{Criterion, Throughput, criterion_group};
use rustix::event::{PollFd, PollFlags, poll};

const CONNECTIONS: usize = 64;
/// Bytes read between two sends. A step of the model does the same on a shared core: it evicts the
/// kernel's code and data from the caches.
const WEIGHTS_BYTES: usize = 8 << 20;
/// About the size of a one-token event.
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
                    // Let the receiver go to sleep again.
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

/// Reads everything until all senders have closed.
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
