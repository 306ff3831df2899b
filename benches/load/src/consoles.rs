//! Processor time of Penstock for each request of 1 KiB, with open consoles and without them.
//!
//! An open console is a connection that reads the live figures, as the page Overview does. Rounds with and without
//! consoles alternate on the same process.

use crate::goals::{self, Goals};
use crate::report::{self, Row};
use crate::targets::Bench;
use crate::{Options, sample, scenarios};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of an answer, and of the next live figures, which come once a second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Password of the invited user.
const PASSWORD: &str = "four words for a load test";

/// Measures requests without and with open consoles, and checks the ratio of their processor times.
pub fn compare(options: &Options, consoles: usize) -> Result<Goals, String> {
    let scenario = scenarios(options.rate).into_iter().next().ok_or("there is no scenario")?;
    let (bench, link) = Bench::console(&options.penstock)?;
    let target = bench.targets.first().ok_or("Penstock did not start")?;
    let session = Session::from_invitation(&link)?;
    drop(sample(target, &scenario, 1.0));
    let mut rows = [Row::new("no console"), Row::new("consoles")];
    for round in 0..options.rounds {
        for offset in 0..rows.len() {
            let at = (offset + round) % rows.len();
            let Some(row) = rows.get_mut(at) else { continue };
            let open = if at == 0 { Vec::new() } else { session.open_consoles(consoles)? };
            row.samples.push(sample(target, &scenario, options.seconds));
            close(open)?;
        }
    }
    let mut goals = Goals::default();
    let [without, with] = &rows;
    let ratio = with.cpu().zip(without.cpu()).map(|(with, without)| with / without);
    goals.check_max("processor time beside that without consoles", ratio, goals::CONSOLES_CPU);
    goals.check_max("failed", Some((without.failed() + with.failed()) as f64), 0.0);
    let title = format!("{}, {consoles} open consoles", scenario.title());
    println!("{}{}", report::table(&title, &rows), goals.take_text());
    Ok(goals)
}

/// Session of a signed-in user.
struct Session {
    address: SocketAddr,
    cookie: String,
}

impl Session {
    /// Accepts an invitation, which sets the password and signs the user in.
    fn from_invitation(link: &str) -> Result<Self, String> {
        let rest = link.strip_prefix("http://").ok_or("the link is no http address")?;
        let (address, path) = rest.split_once('/').ok_or("the link has no path")?;
        let address: SocketAddr = address.parse().map_err(|why| format!("{address}: {why}"))?;
        let form = format!("password={0}&again={0}", PASSWORD.replace(' ', "+"));
        let request = format!(
            "POST /{path} HTTP/1.1\r\nhost: {address}\r\nsec-fetch-site: same-origin\r\nconnection: close\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
            form.len()
        );
        let mut answer = Vec::new();
        let mut stream = connect(address)?;
        let read = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
        read.map_err(|why| format!("sign in: {why}"))?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let fields = answer.lines().filter_map(|line| line.split_once(": "));
        let mut cookies = fields.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let cookie = cookies.next().and_then(|(_, cookie)| cookie.split(';').next());
        let cookie = cookie.ok_or_else(|| format!("no session: {}", answer.lines().next().unwrap_or("")))?;
        Ok(Self { address, cookie: cookie.to_owned() })
    }

    /// Opens consoles, and waits until each has received figures.
    fn open_consoles(&self, consoles: usize) -> Result<Vec<TcpStream>, String> {
        let mut open = Vec::with_capacity(consoles);
        for _ in 0..consoles {
            let mut stream = connect(self.address)?;
            let request = format!(
                "GET /console/events HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\naccept: text/event-stream\r\n\r\n",
                self.address, self.cookie
            );
            stream.write_all(request.as_bytes()).map_err(|why| format!("open a console: {why}"))?;
            open.push(stream);
        }
        open.iter_mut().try_for_each(await_figures)?;
        Ok(open)
    }
}

/// Checks that each console is still open and reads the figures that arrived, then closes it.
fn close(open: Vec<TcpStream>) -> Result<(), String> {
    open.into_iter().try_for_each(|mut stream| await_figures(&mut stream))
}

/// Waits for the next live figures.
fn await_figures(stream: &mut TcpStream) -> Result<(), String> {
    let mut read = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while !read.windows(6).any(|part| part == b"data: ") {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(format!("a console was closed: {}", String::from_utf8_lossy(&read))),
            Ok(count) => read.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(why) => return Err(format!("live figures: {why}")),
        }
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).map_err(|why| format!("{address}: {why}"))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(|why| why.to_string())?;
    Ok(stream)
}
