//! nftables rules as data, and the script for `nft -f -`.
//!
//! A script replaces the content of the chains it names, in one transaction, and leaves other chains of the same table
//! alone: a service mesh may have its own rules in `nat`.

use std::fmt::{self, Write};
use std::net::IpAddr;

use crate::LinkName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Ip,
    Ip6,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub family: Family,
    pub name: &'static str,
    pub chains: Vec<Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub name: &'static str,
    /// Set for base chains, which are attached to a NAT hook; others are only jumped to.
    pub base: Option<Base>,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    pub hook: Hook,
    pub priority: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    Prerouting,
    Input,
    Output,
    Postrouting,
}

/// A packet that meets all matches is counted and gets the verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub matches: Vec<Match>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    InputLink(LinkName),
    OutputLink(LinkName),
    Source(IpAddr),
    Destination(IpAddr),
    DestinationPort(Protocol, u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Masquerade,
    Jump(&'static str),
    Dnat(IpAddr),
    Snat(IpAddr),
}

/// The script after which the named chains hold exactly these rules.
pub fn script(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        // Writing to a String cannot fail.
        let _ = table.write(&mut out);
    }
    out
}

impl Table {
    /// All chains are written before all rules, since a rule may jump to a later chain.
    fn write(&self, out: &mut String) -> fmt::Result {
        let table = format!("{} {}", self.family, self.name);
        writeln!(out, "add table {table}")?;
        for chain in &self.chains {
            write!(out, "add chain {table} {}", chain.name)?;
            match chain.base {
                Some(Base { hook, priority }) => writeln!(out, " {{ type nat hook {hook} priority {priority}; }}")?,
                None => writeln!(out)?,
            }
            writeln!(out, "flush chain {table} {}", chain.name)?;
        }
        for chain in &self.chains {
            for rule in &chain.rules {
                write!(out, "add rule {table} {}", chain.name)?;
                for m in &rule.matches {
                    m.write(self.family, out)?;
                }
                writeln!(out, " counter {}", rule.verdict)?;
            }
        }
        Ok(())
    }
}

impl Match {
    fn write(&self, family: Family, out: &mut String) -> fmt::Result {
        match self {
            Match::InputLink(name) => write!(out, " iifname \"{name}\""),
            Match::OutputLink(name) => write!(out, " oifname \"{name}\""),
            Match::Source(ip) => write!(out, " {family} saddr {ip}"),
            Match::Destination(ip) => write!(out, " {family} daddr {ip}"),
            Match::DestinationPort(Protocol::Tcp, port) => write!(out, " tcp dport {port}"),
            Match::DestinationPort(Protocol::Udp, port) => write!(out, " udp dport {port}"),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ip => "ip",
            Family::Ip6 => "ip6",
        })
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Masquerade => f.write_str("masquerade"),
            Verdict::Jump(chain) => write!(f, "jump {chain}"),
            Verdict::Dnat(to) => write!(f, "dnat to {to}"),
            Verdict::Snat(to) => write!(f, "snat to {to}"),
        }
    }
}
