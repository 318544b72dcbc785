//! The network between a runner and its bus, as a test breaks it: what goes through it stands still while it is cut, and
//! arrives late once it is mended, as a partition does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often what stands still looks whether it may go on.
const LOOK: Duration = Duration::from_millis(10);

/// A wire on a port of its own; its threads end with the sides that they join, or with the test's process.
pub(crate) struct Wire {
    port: u16,
    cut: Arc<AtomicBool>,
}

impl Wire {
    /// A wire to that port of 127.0.0.1.
    pub(crate) fn to(port: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cut);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                wait_while(&is_cut);
                // The other side may be down: then this one is, too.
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let is_cut = Arc::clone(&is_cut);
                    thread::spawn(move || carry(from, to, &is_cut));
                }
            }
        });
        Wire { port: own, cut }
    }

    /// Its own address, as a client of the bus is given it.
    pub(crate) fn url(&self) -> String {
        format!("tls://127.0.0.1:{}", self.port)
    }

    /// Nothing goes through it from now on.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// All goes through it again, what stood still first.
    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

fn wait_while(is_cut: &AtomicBool) {
    while is_cut.load(Ordering::SeqCst) {
        thread::sleep(LOOK);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        wait_while(is_cut);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    for side in [&from, &to] {
        let _gone_already = side.shutdown(Shutdown::Both);
    }
}
