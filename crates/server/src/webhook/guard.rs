//! Which addresses may be called.
//!
//! Whoever may write a trigger may make this server send requests, and this server stands inside a network:
//! it reaches databases without passwords, the dashboards of other machines, and the metadata service of its
//! cloud, which hands out credentials. So by default a webhook goes to the public internet and nowhere else.
//! An operator opens ranges with an allow-list.
//!
//! What is judged is the address that the connection goes to, at each connection, after the name was looked up
//! and with no second look-up in between. A name that points elsewhere a moment later (DNS rebinding) gains
//! nothing: the address that was judged is the one that is called.
//!
//! An address may carry another one inside. `::ffff:127.0.0.1` *is* 127.0.0.1; behind a NAT64 gateway
//! `64:ff9b::10.0.0.1` leads to 10.0.0.1, and 6to4 does likewise. These are judged by what is inside.
//! Of IPv6 only what has been given out for the public internet (`2000::/3`) is public; everything else is
//! refused without having to be known by name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses: `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    bits: u8,
}

/// Why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no range of addresses: write an address, or its first address and the number of fixed bits, like 10.0.0.0/8 or fd00::/8"
)]
pub struct BadCidr(String);

impl Cidr {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(first: u16, second: u16, bits: u8) -> Self {
        Self { base: IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)), bits }
    }

    /// Whether the address lies in it. IPv4 ranges hold IPv4 addresses only, and IPv6 ranges IPv6 ones.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                u32::from(base) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                u128::from(base) & mask == u128::from(address) & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let bad = || BadCidr(text.to_owned());
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| bad())?;
        let bits_max = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(bits_max), |bits| bits.parse().map_err(|_| bad()))?;
        let range = Self { base, bits };
        // A base with bits behind its range is a slip: 10.0.0.1/8 was meant to be something else.
        let first = match base {
            IpAddr::V4(base) if bits <= 32 => {
                u32::from(base).checked_shl(u32::from(bits)).unwrap_or(0) == 0
            }
            IpAddr::V6(base) if bits <= 128 => {
                u128::from(base).checked_shl(u32::from(bits)).unwrap_or(0) == 0
            }
            IpAddr::V4(_) | IpAddr::V6(_) => false,
        };
        if first { Ok(range) } else { Err(bad()) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.base, self.bits)
    }
}

/// IPv4 addresses that are not for the public, and what they are.
const V4_FORBIDDEN: [(Cidr, &str); 18] = [
    (Cidr::v4(0, 0, 0, 0, 8), "means this machine"),
    (Cidr::v4(10, 0, 0, 0, 8), "is private"),
    (Cidr::v4(100, 64, 0, 0, 10), "belongs to a carrier's own network"),
    (Cidr::v4(127, 0, 0, 0, 8), "is this machine (loopback)"),
    (Cidr::v4(168, 63, 129, 16, 32), "is a cloud's own service"),
    (Cidr::v4(169, 254, 0, 0, 16), "is link-local, where clouds keep their metadata"),
    (Cidr::v4(172, 16, 0, 0, 12), "is private"),
    (Cidr::v4(192, 0, 0, 0, 24), "is reserved for protocols"),
    (Cidr::v4(192, 0, 2, 0, 24), "is for documentation"),
    (Cidr::v4(192, 31, 196, 0, 24), "is reserved for protocols"),
    (Cidr::v4(192, 52, 193, 0, 24), "is reserved for protocols"),
    (Cidr::v4(192, 88, 99, 0, 24), "is reserved for protocols"),
    (Cidr::v4(192, 168, 0, 0, 16), "is private"),
    (Cidr::v4(198, 18, 0, 0, 15), "is for benchmarks of networks"),
    (Cidr::v4(198, 51, 100, 0, 24), "is for documentation"),
    (Cidr::v4(203, 0, 113, 0, 24), "is for documentation"),
    (Cidr::v4(224, 0, 0, 0, 4), "is multicast"),
    (Cidr::v4(240, 0, 0, 0, 4), "is reserved"),
];

/// The part of IPv6 that was given out for the public internet.
const V6_PUBLIC: Cidr = Cidr::v6(0x2000, 0, 3);

/// Parts of that which are not for the public after all.
const V6_FORBIDDEN: [(Cidr, &str); 3] = [
    (Cidr::v6(0x2001, 0, 23), "is reserved for protocols, such as Teredo"),
    (Cidr::v6(0x2001, 0xdb8, 32), "is for documentation"),
    (Cidr::v6(0x3fff, 0, 20), "is for documentation"),
];

/// Names for what lies outside of the public part, for a better sentence.
const V6_NAMED: [(Cidr, &str); 6] = [
    (Cidr { base: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 }, "is this machine (loopback)"),
    (Cidr { base: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 128 }, "means this machine"),
    (Cidr::v6(0xfc00, 0, 7), "is private"),
    (Cidr::v6(0xfe80, 0, 10), "is link-local"),
    (Cidr::v6(0xff00, 0, 8), "is multicast"),
    (
        Cidr { base: IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0)), bits: 48 },
        "is translated by a local gateway, nobody can say to what",
    ),
];

/// Why an address may not be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} {what}, and webhooks go to public addresses only: an operator can allow it with --webhook-allow {address}"
)]
pub struct Forbidden {
    address: IpAddr,
    what: &'static str,
}

/// Judges which addresses may be called.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    allow: Box<[Cidr]>,
}

impl Guard {
    /// Public addresses, and those in these ranges.
    pub fn new(allow: &[Cidr]) -> Self {
        Self { allow: allow.into() }
    }

    /// Whether an address may be called.
    pub fn judge(&self, address: IpAddr) -> Result<(), Forbidden> {
        if self.allow.iter().any(|range| range.contains(address)) {
            return Ok(());
        }
        match address {
            IpAddr::V4(address) => self.judge_v4(address),
            IpAddr::V6(address) => self.judge_v6(address),
        }
    }

    fn judge_v4(&self, address: Ipv4Addr) -> Result<(), Forbidden> {
        let address = IpAddr::V4(address);
        if self.allow.iter().any(|range| range.contains(address)) {
            return Ok(());
        }
        refuse_in(&V4_FORBIDDEN, address)
    }

    fn judge_v6(&self, address: Ipv6Addr) -> Result<(), Forbidden> {
        if let Some(inner) = inside(address) {
            let judged = self.judge_v4(inner);
            return judged.map_err(|why| Forbidden { address: IpAddr::V6(address), ..why });
        }
        let address = IpAddr::V6(address);
        if V6_PUBLIC.contains(address) {
            return refuse_in(&V6_FORBIDDEN, address);
        }
        refuse_in(&V6_NAMED, address)?;
        Err(Forbidden { address, what: "is not of the public internet" })
    }
}

fn refuse_in(ranges: &[(Cidr, &'static str)], address: IpAddr) -> Result<(), Forbidden> {
    match ranges.iter().find(|(range, _)| range.contains(address)) {
        Some((_, what)) => Err(Forbidden { address, what }),
        None => Ok(()),
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, behind NAT64's well-known prefix, or 6to4.
fn inside(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let words = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match words {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(join(high, low))
        }
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(allow: &[&str], address: &str) -> Result<(), String> {
        let allow: Vec<Cidr> = allow.iter().map(|range| range.parse().unwrap()).collect();
        let judged = Guard::new(&allow).judge(address.parse().unwrap());
        judged.map_err(|why| why.to_string())
    }

    #[test]
    fn public_addresses_may_be_called() {
        for good in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "2001:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "3ffe::1",
        ] {
            assert_eq!(judge(&[], good), Ok(()), "{good}");
        }
    }

    #[test]
    fn every_other_address_is_refused_at_both_ends_of_its_range() {
        for bad in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.0",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.0.0",
            "169.254.169.254",
            "169.254.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.0",
            "192.0.0.255",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.0",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::127.0.0.1",
            "::8.8.8.8",
            "100::1",
            "fc00::",
            "fdff::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "2001:10::1",
            "3fff::1",
            "5f00::1",
            "4000::1",
            "1fff::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:0",
            "64:ff9b::10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1.1.1.1",
            "64:ff9b:1:ffff::1",
            "64:ff9b:0:1::1.1.1.1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:a9fe:a9fe::1",
        ] {
            let refusal = judge(&[], bad).expect_err(bad);
            assert!(refusal.contains("--webhook-allow"), "{refusal}");
        }
    }

    #[test]
    fn a_refusal_says_what_the_address_is() {
        for (address, said) in [
            ("127.0.0.1", "127.0.0.1 is this machine (loopback)"),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1 is this machine (loopback)"),
            ("169.254.169.254", "metadata"),
            ("fd00::1", "is private"),
            ("2001::1", "Teredo"),
            ("1000::1", "not of the public internet"),
        ] {
            let refusal = judge(&[], address).unwrap_err();
            assert!(refusal.contains(said), "{refusal}");
        }
    }

    #[test]
    fn an_allowed_range_opens_what_is_in_it_and_nothing_else() {
        assert_eq!(judge(&["127.0.0.0/8"], "127.0.0.1"), Ok(()));
        assert_eq!(judge(&["127.0.0.0/8"], "::ffff:127.0.0.1"), Ok(()), "it is the same");
        assert_eq!(judge(&["10.0.0.7"], "10.0.0.7"), Ok(()));
        assert!(judge(&["10.0.0.7"], "10.0.0.8").is_err());
        assert!(judge(&["127.0.0.0/8"], "::1").is_err());
        assert_eq!(judge(&["10.0.0.0/8", "fd00::/8"], "fd12::1"), Ok(()));
        assert_eq!(judge(&["0.0.0.0/0"], "127.0.0.1"), Ok(()));
        assert_eq!(judge(&["::/0"], "::1"), Ok(()));
        assert!(judge(&["::/0"], "127.0.0.1").is_err());
    }

    #[test]
    fn a_range_is_read_as_it_is_written() {
        for good in ["10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32", "fd00::/8", "::/0", "::1/128"] {
            assert_eq!(good.parse::<Cidr>().unwrap().to_string(), good);
        }
        assert_eq!("::1".parse::<Cidr>().unwrap().to_string(), "::1/128");
        for bad in
            ["", "10", "10.0.0.0/33", "::/129", "10.0.0.1/8", "10.0.0.0/", "a/8", "10.0.0.0/-1"]
        {
            let refusal = bad.parse::<Cidr>().unwrap_err().to_string();
            assert!(refusal.contains("10.0.0.0/8 or"), "{refusal}");
        }
    }
}
